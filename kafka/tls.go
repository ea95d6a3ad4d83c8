package kafka

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
)

// ClientAuth says what a TLS port wants of its clients.
type ClientAuth string

// What clients are asked for: nothing; a certificate, which is verified if there is one; or a certificate, without which
// there is no connection.
const (
	ClientAuthNone    ClientAuth = "none"
	ClientAuthRequest ClientAuth = "request"
	ClientAuthRequire ClientAuth = "require"
)

// TLSFiles names the PEM files of the client port: its certificate with the intermediate ones behind it, its key, and, unless
// clients are asked for nothing, the authorities whose client certificates are taken.
type TLSFiles struct {
	Cert, Key, CA string
}

// TLS is the certificate of the client port. The files are looked at with each handshake and read again when they have
// changed, so that a renewed certificate needs no restart; connections that stand keep theirs. It is safe for concurrent use.
type TLS struct {
	files TLSFiles
	auth  ClientAuth
	// listener is the configuration of listeners; each handshake takes the newest.
	listener *tls.Config
	cur      atomic.Pointer[loadedTLS]

	mu       sync.Mutex
	failed   tlsStamps
	failedAt time.Time
	err      error
}

// loadedTLS is one usable set of files. It is never changed.
type loadedTLS struct {
	config *tls.Config
	leaf   *x509.Certificate
	stamps tlsStamps
}

type tlsStamp struct {
	mtime time.Time
	size  int64
}

type tlsStamps [3]tlsStamp

const (
	// maxTLSFile bounds a PEM file.
	maxTLSFile = 1 << 20
	// tlsRetry is how long files that can't be used are left alone while their times do not change.
	tlsRetry = time.Second
	// handshakeTimeout bounds a handshake from the first byte to the last.
	handshakeTimeout = 10 * time.Second
)

// LoadTLS reads the files. It refuses a certificate that is not valid now, a key that is another one's, and a request for
// client certificates without authorities, or the other way round.
func LoadTLS(files TLSFiles, auth ClientAuth) (*TLS, error) {
	switch {
	case auth != ClientAuthNone && auth != ClientAuthRequest && auth != ClientAuthRequire:
		return nil, fmt.Errorf("client authentication %q: want %s, %s or %s", auth, ClientAuthNone, ClientAuthRequest, ClientAuthRequire)
	case auth == ClientAuthNone && files.CA != "":
		return nil, fmt.Errorf("authorities of client certificates are given (%s) and no client is asked for one: ask, or leave them out", files.CA)
	case auth != ClientAuthNone && files.CA == "":
		return nil, errors.New("clients are asked for certificates and there is no file with the authorities that may have issued them")
	}
	t := &TLS{files: files, auth: auth}
	stamps, err := t.stat()
	if err != nil {
		return nil, err
	}
	l, err := t.load(stamps)
	if err != nil {
		return nil, err
	}
	t.cur.Store(l)
	t.listener = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.current().config, nil },
	}
	return t, nil
}

// NotAfter is when the newest usable certificate ends.
func (t *TLS) NotAfter() time.Time { return t.current().leaf.NotAfter }

// NotBefore is when the newest usable certificate begins.
func (t *TLS) NotBefore() time.Time { return t.current().leaf.NotBefore }

// ReloadErr says why the files on disk are not in use; nil if they are. It looks at the files.
func (t *TLS) ReloadErr() error {
	t.current()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// current returns the newest usable set. Files that can't be used, say because they are just being replaced, leave the
// set in use as it was.
func (t *TLS) current() *loadedTLS {
	t.mu.Lock()
	defer t.mu.Unlock()
	cur := t.cur.Load()
	now, err := t.stat()
	switch {
	case err == nil && now == cur.stamps:
		t.err = nil
		return cur
	case err == nil && now == t.failed && time.Since(t.failedAt) < tlsRetry:
		return cur
	}
	var next *loadedTLS
	if err == nil {
		next, err = t.load(now)
	}
	if t.err = err; err != nil {
		t.failed, t.failedAt = now, time.Now()
		return cur
	}
	t.cur.Store(next)
	return next
}

func (t *TLS) names() []string {
	if t.files.CA == "" {
		return []string{t.files.Cert, t.files.Key}
	}
	return []string{t.files.Cert, t.files.Key, t.files.CA}
}

func (t *TLS) stat() (s tlsStamps, err error) {
	for i, name := range t.names() {
		info, err := os.Stat(name)
		if err != nil {
			return s, fmt.Errorf("TLS file: %w", err)
		}
		if info.Size() > maxTLSFile {
			return s, fmt.Errorf("TLS file %s has %d bytes, at most %d are read", name, info.Size(), maxTLSFile)
		}
		s[i] = tlsStamp{info.ModTime(), info.Size()}
	}
	return s, nil
}

func (t *TLS) load(s tlsStamps) (*loadedTLS, error) {
	pems := make([][]byte, 3)
	for i, name := range t.names() {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("TLS file: %w", err)
		}
		pems[i] = data
	}
	pair, err := tls.X509KeyPair(pems[0], pems[1])
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", t.files.Cert, t.files.Key, err)
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) || now.Before(pair.Leaf.NotBefore) {
		return nil, fmt.Errorf("certificate %s is valid from %s to %s: renew it", t.files.Cert, pair.Leaf.NotBefore.Format(time.RFC3339), pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	cfg := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair},
		// A resumed session would not be held to the authorities of now.
		SessionTicketsDisabled: t.auth != ClientAuthNone,
	}
	if t.auth != ClientAuthNone {
		cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
		if t.auth == ClientAuthRequire {
			cfg.ClientAuth = tls.RequireAndVerifyClientCert
		}
		if !cfg.ClientCAs.AppendCertsFromPEM(bytes.TrimSpace(pems[2])) {
			return nil, fmt.Errorf("%s: no certificate of an authority in it", t.files.CA)
		}
	}
	return &loadedTLS{config: cfg, leaf: pair.Leaf, stamps: s}, nil
}

// errHandshake: a client of a TLS port that did not get as far as a request.
var errHandshake = errors.New("TLS handshake")

// handshake finishes the handshake of a TLS connection, within its time; it does nothing on a plaintext one.
func (c *conn) handshake() error {
	secure, ok := c.nc.(*tls.Conn)
	if !ok {
		return nil
	}
	secure.SetDeadline(time.Now().Add(handshakeTimeout))
	if c.server.isDraining() { // Close may have set its deadline before ours
		return errStopped
	}
	if err := secure.HandshakeContext(c.ctx); err != nil {
		return fmt.Errorf("%w: %w", errHandshake, err)
	}
	secure.SetDeadline(time.Time{})
	return nil
}
