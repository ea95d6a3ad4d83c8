package adminapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"time"

	"github.com/vtop-log/vtop/transport/tlsid"
)

// alertTime is how long a node is listened to for the reason why it closed a connection. A busy one takes its time.
const alertTime = 2 * time.Second

// Alerts by which the other end of a handshake refuses a certificate (RFC 8446, section 6).
var (
	alertExpired          = tls.AlertError(45)
	alertUnknownAuthority = tls.AlertError(48)
	// alertRequired comes if this end has shown none: it shows none that the node's list of authorities has no place for.
	alertRequired     = tls.AlertError(116)
	certificateAlerts = []tls.AlertError{42, 43, 44, alertExpired, 46, alertUnknownAuthority, 49, alertRequired}
)

// notTakenError is why this end does not take the node's certificate.
type notTakenError struct{ err error }

func (e *notTakenError) Error() string { return e.err.Error() }
func (e *notTakenError) Unwrap() error { return e.err }

// dialTLS connects and shakes hands. A node that does not take this end's certificate says so only afterwards.
func (c *Client) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	raw, err := c.dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	cfg := c.id.ClientConfig("", "http/1.1")
	verify := cfg.VerifyConnection
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		if err := verify(cs); err != nil {
			return &notTakenError{err}
		}
		return nil
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return conn, nil
}

// certificate says which end does not take the other's certificate, if that is why a call failed; else nil.
func (c *Client) certificate(ctx context.Context, err error) *Error {
	if c.id == nil {
		return nil
	}
	e := c.certificateIn(err)
	var op *net.OpError
	if e != nil || errors.As(err, &op) && op.Op == "dial" {
		return e
	}
	return c.certificateIn(c.alert(ctx))
}

func (c *Client) certificateIn(err error) *Error {
	var here *notTakenError
	if errors.As(err, &here) {
		return c.notTaken(here.err)
	}
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" || op.Err == nil {
		return nil
	}
	for _, alert := range certificateAlerts {
		if op.Err.Error() == alert.Error() {
			return c.refused(alert)
		}
	}
	return nil
}

// refused is for what the node says of this end's certificate.
func (c *Client) refused(alert tls.AlertError) *Error {
	why := "the node refuses it"
	switch alert {
	case alertUnknownAuthority, alertRequired:
		why = "it was issued by an authority that the node does not know"
	case alertExpired:
		why = "it has expired"
	}
	return Errorf(CodeCertificate, "%s does not take the certificate of %s: %s (%v)", c.base, c.id.Subject(), why, alert).
		WithHint("have the cluster's authority issue one with vtopctl cert issue NAME --operator, and give it as --tls-cert and --tls-key")
}

// notTaken is for what this end says of the node's certificate.
func (c *Client) notTaken(err error) *Error {
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &authority):
		return Errorf(CodeCertificate, "%s: %v: it is none of those in --tls-ca", c.base, err).
			WithHint("give the ca.crt of the node's cluster as --tls-ca; if it is that, a node of another cluster listens there")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return Errorf(CodeCertificate, "%s: %v", c.base, err).
			WithHint("have the cluster's authority issue a new one with vtopctl cert issue NODE: the node takes new files up without a restart")
	case errors.Is(err, tlsid.ErrWrongName), errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return Errorf(CodeCertificate, "%s: %v", c.base, err).WithHint("the node was started with the certificate of somebody else: give it that of vtopctl cert issue NODE")
	}
	return Errorf(CodeCertificate, "%s: %v", c.base, err).WithHint("is it the admin port of a vtopd of this cluster?")
}

// alert asks for the reason why a connection ended without an answer. A node that refuses a certificate while the request is on its way closes with bytes
// unread, and its alert may be lost for that; to a client that is silent it comes.
func (c *Client) alert(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*c.alertTime)
	defer cancel()
	conn, err := c.dialTLS(ctx, "tcp", c.endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(c.alertTime))
	_, err = conn.Read(make([]byte, 1))
	return err
}
