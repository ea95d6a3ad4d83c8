package tlsid

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/vtop-log/vtop"
)

// Role says what a certificate is for.
type Role string

const (
	// Node may use the peer plane and the admin plane.
	Node Role = "node"
	// Operator may use the admin plane.
	Operator Role = "operator"
)

// Subject is whom a certificate names.
type Subject struct {
	Role Role
	Name vtop.NodeName
}

// String gives the URI form.
func (s Subject) String() string { return "vtop://" + string(s.Role) + "/" + string(s.Name) }

func (s Subject) uri() *url.URL {
	return &url.URL{Scheme: "vtop", Host: string(s.Role), Path: "/" + string(s.Name)}
}

// CheckName refuses a name that is empty, longer than 63 bytes, or holds other than letters, digits, '.', '_'
// and '-'.
func CheckName(name vtop.NodeName) error {
	if name == "" || len(name) > 63 {
		return fmt.Errorf("name %q: want 1 to 63 characters", name)
	}
	for _, r := range name {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
		if !ok {
			return fmt.Errorf("name %q: want letters, digits, '.', '_' and '-' only", name)
		}
	}
	return nil
}

// subjectOf reads the one vtop URI of a certificate.
func subjectOf(c *x509.Certificate) (Subject, error) {
	var found []Subject
	for _, u := range c.URIs {
		if u.Scheme == "vtop" {
			found = append(found, Subject{Role(u.Host), vtop.NodeName(strings.TrimPrefix(u.Path, "/"))})
		}
	}
	if len(found) != 1 {
		return Subject{}, fmt.Errorf("certificate of %q has %d vtop:// names, want one: issue it with 'vtopctl cert issue'", c.Subject.CommonName, len(found))
	}
	s := found[0]
	if s.Role != Node && s.Role != Operator {
		return Subject{}, fmt.Errorf("certificate names %s: want the role node or operator", s)
	}
	if err := CheckName(s.Name); err != nil {
		return Subject{}, fmt.Errorf("certificate: %w", err)
	}
	return s, nil
}

// SubjectOf returns whom the other end of a finished handshake is. It believes the chain, which the
// configurations of this package have verified.
func SubjectOf(cs tls.ConnectionState) (Subject, error) {
	if len(cs.PeerCertificates) == 0 {
		return Subject{}, errors.New("peer shows no certificate")
	}
	return subjectOf(cs.PeerCertificates[0])
}

// Named says in the error of a handshake whose certificate it was, if this end did not take it. Other errors stay as they are.
func Named(err error) error {
	var refused *tls.CertificateVerificationError
	if !errors.As(err, &refused) || len(refused.UnverifiedCertificates) == 0 {
		return err
	}
	s, serr := subjectOf(refused.UnverifiedCertificates[0])
	if serr != nil {
		return err
	}
	return fmt.Errorf("certificate of %s: %w", s, refused.Err)
}

// ServerConfig is for listeners: it asks for a certificate of one of the accepted roles. Each handshake uses
// the newest files. Sessions are not resumed, since that would skip the check.
func (i *Identity) ServerConfig(accept []Role, alpn ...string) *tls.Config {
	build := func() *tls.Config {
		l := i.current()
		return &tls.Config{
			MinVersion:             tls.VersionTLS13,
			Certificates:           []tls.Certificate{l.cert},
			ClientAuth:             tls.RequireAndVerifyClientCert,
			ClientCAs:              l.roots,
			NextProtos:             alpn,
			SessionTicketsDisabled: true,
			// Small first records help browsers on slow links; between nodes they only cost system calls.
			DynamicRecordSizingDisabled: true,
			VerifyConnection: func(cs tls.ConnectionState) error {
				s, err := SubjectOf(cs)
				if err != nil {
					return err
				}
				if !slices.Contains(accept, s.Role) {
					return fmt.Errorf("%w: %s may not use this port", ErrWrongName, s)
				}
				return nil
			},
		}
	}
	cfg := build()
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return build(), nil }
	return cfg
}

// ClientConfig is for one connection to the named node, or to any node of the cluster if want is empty. Host
// names play no part: what is verified is the authority and the node's name.
func (i *Identity) ClientConfig(want vtop.NodeName, alpn ...string) *tls.Config {
	l := i.current()
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{l.cert},
		NextProtos:         alpn,
		ServerName:         "vtop",
		InsecureSkipVerify: true, // VerifyConnection does it, against a name instead of a host

		DynamicRecordSizingDisabled: true,
		VerifyConnection:            func(cs tls.ConnectionState) error { return verifyServer(cs, l.roots, want) },
	}
}

func verifyServer(cs tls.ConnectionState, roots *x509.CertPool, want vtop.NodeName) error {
	s, err := SubjectOf(cs)
	if err != nil {
		return err
	}
	inter := x509.NewCertPool()
	for _, c := range cs.PeerCertificates[1:] {
		inter.AddCert(c)
	}
	_, err = cs.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: inter, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return fmt.Errorf("certificate of %s: %w", s, err)
	}
	if s.Role != Node || want != "" && s.Name != want {
		return fmt.Errorf("%w: peer is %s, wanted %s", ErrWrongName, s, Subject{Node, want})
	}
	return nil
}

// CheckPlaintext says whether a plane ("peer", "admin") may listen at addr without TLS: on loopback, or
// anywhere if the operator said so by an explicit word. With an identity it may listen anywhere.
func CheckPlaintext(plane, addr string, id *Identity, allowed bool) error {
	if id != nil || allowed {
		return nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%s address %q: %w", plane, addr, err)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%s plane at %q would be open to the network: give --tls-cert, --tls-key and --tls-ca (see 'vtopctl cert init'), "+
		"listen on 127.0.0.1, or say --allow-plaintext", plane, addr)
}
