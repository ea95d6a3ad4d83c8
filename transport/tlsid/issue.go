package tlsid

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"
)

// Authority is a certificate authority of one cluster. Whoever has its key can be any node: it belongs on no
// node, only where certificates are issued.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Request says what certificate to issue.
type Request struct {
	Subject
	// Hosts are the DNS names and IP addresses of the node, for browsers and curl; nodes do not look at them.
	Hosts []string
	// Valid is how long, from now; cut to the authority's own end.
	Valid time.Duration
}

// backdate allows for clocks that are a little behind the issuer's.
const backdate = 5 * time.Minute

// NewAuthority makes an authority with an ECDSA P-256 key.
func NewAuthority(commonName string, valid time.Duration, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(valid),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("sign authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back authority: %w", err)
	}
	return &Authority{cert, key}, nil
}

// ParseAuthority reads what CertPEM and KeyPEM wrote.
func ParseAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	cb, _ := pem.Decode(certPEM)
	kb, _ := pem.Decode(keyPEM)
	if cb == nil || kb == nil {
		return nil, errors.New("authority: certificate and key must be PEM")
	}
	cert, err := x509.ParseCertificate(cb.Bytes)
	if err != nil {
		return nil, fmt.Errorf("authority certificate: %w", err)
	}
	if !cert.IsCA {
		return nil, fmt.Errorf("certificate of %q is not an authority's", cert.Subject.CommonName)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(kb.Bytes)
	if err != nil {
		return nil, fmt.Errorf("authority key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("authority key is a %T, want ECDSA", parsed)
	}
	if pub, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok || !pub.Equal(&key.PublicKey) {
		return nil, errors.New("authority key does not belong to the authority certificate")
	}
	return &Authority{cert, key}, nil
}

// CertPEM is the authority's certificate: the CA file of every node.
func (a *Authority) CertPEM() []byte { return certPEM(a.cert.Raw) }

// KeyPEM is the authority's key, to be kept secret.
func (a *Authority) KeyPEM() ([]byte, error) { return keyPEM(a.key) }

// NotAfter is when the authority ends.
func (a *Authority) NotAfter() time.Time { return a.cert.NotAfter }

// Issue makes a key and a certificate for req, both PEM.
func (a *Authority) Issue(req Request, now time.Time) (cert, key []byte, err error) {
	if req.Role != Node && req.Role != Operator {
		return nil, nil, fmt.Errorf("role %q: want node or operator", req.Role)
	}
	if err := CheckName(req.Name); err != nil {
		return nil, nil, err
	}
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: string(req.Name), Organization: []string{"vtop " + string(req.Role)}},
		NotBefore:    now.Add(-backdate),
		NotAfter:     now.Add(req.Valid),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs:         []*url.URL{req.uri()},
	}
	if tmpl.NotAfter.After(a.cert.NotAfter) {
		tmpl.NotAfter = a.cert.NotAfter
	}
	if req.Role == Node {
		tmpl.ExtKeyUsage = append(tmpl.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range req.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &priv.PublicKey, a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate of %s: %w", req.Subject, err)
	}
	if key, err = keyPEM(priv); err != nil {
		return nil, nil, err
	}
	return certPEM(der), key, nil
}

func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	return n, nil
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
