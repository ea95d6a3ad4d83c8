// Package tlsid binds a node's name to a certificate, for the peer plane and the admin plane.
//
// An Identity is a certificate, its key and the authorities it trusts, read from three files and read again
// when they change, so that renewed certificates need no restart. The name stands in a URI of the certificate:
// vtop://node/NAME for a node, vtop://operator/NAME for a person. Both sides of every connection show one
// (mutual TLS, version 1.3 only). An Authority makes such certificates; vtopctl cert uses it.
//
// The package does not authenticate Kafka clients, revokes nothing, and asks no network for anything.
package tlsid

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vtop-log/vtop"
)

// Files names the PEM files of an identity. CA may hold several authorities, so that one can be replaced.
type Files struct {
	Cert, Key, CA string
}

// Identity is one node's or operator's certificate with hot reload. It is safe for concurrent use.
type Identity struct {
	files Files
	cur   atomic.Pointer[loaded]

	mu       sync.Mutex
	failed   stamps
	failedAt time.Time
	err      error
}

// loaded is one valid set of files. It is never changed.
type loaded struct {
	cert    tls.Certificate
	leaf    *x509.Certificate
	roots   *x509.CertPool
	subject Subject
	stamps  stamps
}

type stamp struct {
	mtime time.Time
	size  int64
}

type stamps [3]stamp

// retryAfter is how long a set of files that could not be used is left alone while its times do not change.
const retryAfter = time.Second

// Load reads the three files. It refuses a certificate that has expired, that its own CA file does not cover,
// whose key is another one, or that has no vtop URI.
func Load(files Files) (*Identity, error) {
	s, err := stat(files)
	if err != nil {
		return nil, err
	}
	l, err := load(files, s)
	if err != nil {
		return nil, err
	}
	i := &Identity{files: files}
	i.cur.Store(l)
	return i, nil
}

// Name is the name in the certificate. It never changes: a renewed certificate of another name is not taken.
func (i *Identity) Name() vtop.NodeName { return i.cur.Load().subject.Name }

// Subject is role and name in the certificate.
func (i *Identity) Subject() Subject { return i.cur.Load().subject }

// NotAfter is when the newest usable certificate ends. It looks at the files, as a handshake does.
func (i *Identity) NotAfter() time.Time { return i.current().leaf.NotAfter }

// NotBefore is when the newest usable certificate begins.
func (i *Identity) NotBefore() time.Time { return i.current().leaf.NotBefore }

// ReloadErr says why the files on disk are not in use; nil if they are. It looks at the files.
func (i *Identity) ReloadErr() error {
	i.current()
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err
}

// current returns the newest usable set, after a look at the files' times. Files that cannot be used, say
// because they are just being replaced, leave the set in use as it was.
func (i *Identity) current() *loaded {
	cur := i.cur.Load()
	now, err := stat(i.files)
	if err == nil && now == cur.stamps {
		if i.failing() {
			i.settle(nil)
		}
		return cur
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if cur = i.cur.Load(); err == nil && now == cur.stamps {
		return cur
	}
	if err == nil && now == i.failed && time.Since(i.failedAt) < retryAfter {
		return cur
	}
	var next *loaded
	if err == nil {
		next, err = load(i.files, now)
	}
	if err == nil && next.subject != cur.subject {
		err = fmt.Errorf("%s: certificate is for %s, this process is %s: a name changes only at a restart", i.files.Cert, next.subject, cur.subject)
	}
	if err != nil {
		i.failed, i.failedAt, i.err = now, time.Now(), err
		return cur
	}
	i.err = nil
	i.cur.Store(next)
	return next
}

func (i *Identity) failing() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err != nil
}

func (i *Identity) settle(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.err = err
}

func stat(f Files) (stamps, error) {
	var s stamps
	for n, name := range []string{f.Cert, f.Key, f.CA} {
		info, err := os.Stat(name)
		if err != nil {
			return s, fmt.Errorf("tls file: %w", err)
		}
		s[n] = stamp{info.ModTime(), info.Size()}
	}
	return s, nil
}

func load(f Files, s stamps) (*loaded, error) {
	certPEM, err := readFile(f.Cert)
	if err != nil {
		return nil, err
	}
	keyPEM, err := readFile(f.Key)
	if err != nil {
		return nil, err
	}
	caPEM, err := readFile(f.CA)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bytes.TrimSpace(caPEM)) {
		return nil, fmt.Errorf("%s: no certificate of an authority in it", f.CA)
	}
	subject, err := subjectOf(pair.Leaf)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Cert, err)
	}
	l := &loaded{cert: pair, leaf: pair.Leaf, roots: roots, subject: subject, stamps: s}
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("certificate %s against authority %s: %w", f.Cert, f.CA, err)
	}
	return l, nil
}

// check verifies the own chain, so that a wrong set of files is found here and not by the other nodes.
func (l *loaded) check() error {
	inter := x509.NewCertPool()
	for _, der := range l.cert.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		inter.AddCert(c)
	}
	_, err := l.leaf.Verify(x509.VerifyOptions{
		Roots: l.roots, Intermediates: inter, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// maxFile bounds a PEM file.
const maxFile = 1 << 20

func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("tls file: %w", err)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("tls file %s has %d bytes, at most %d are read", name, info.Size(), maxFile)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("tls file: %w", err)
	}
	return data, nil
}

// ErrWrongName: the certificate at the other end is valid, but names somebody else.
var ErrWrongName = errors.New("certificate of another name")
