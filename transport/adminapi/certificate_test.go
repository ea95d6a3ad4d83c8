package adminapi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/transport/tlsid"
)

// TestAdminPort_WantsAKnownCertificate: with TLS, nobody without a certificate of the cluster calls anything, and whoever
// has another one is told so, whichever end found it: with its own code, and what to do.
func TestAdminPort_WantsAKnownCertificate(t *testing.T) {
	ca, err := tlsid.NewAuthority("c", time.Hour, time.Now())
	must(t, err)
	other, err := tlsid.NewAuthority("d", time.Hour, time.Now())
	must(t, err)
	namesake, err := tlsid.NewAuthority("c", time.Hour, time.Now())
	must(t, err)
	node, eve := tlsid.Subject{Role: tlsid.Node, Name: "a"}, tlsid.Subject{Role: tlsid.Operator, Name: "eve"}
	for _, row := range []struct {
		name           string
		server, client *tlsid.Identity
		code           Code
		message, hint  string
	}{
		{"plaintext", identity(t, ca, node), nil, CodeUnreachable, "which vtopd would not", "does it want TLS?"},
		{"TLS to plaintext", nil, identity(t, ca, eve), CodeUnreachable, "no answer from", "--tls-*"},
		{"the node does not know the client's authority", identity(t, ca, node), identity(t, other, eve, ca), CodeCertificate,
			"does not take the certificate of vtop://operator/eve: it was issued by an authority that the node does not know", "vtopctl cert issue NAME --operator"},
		{"of the same name", identity(t, ca, node), identity(t, namesake, eve, ca), CodeCertificate, "by an authority that the node does not know", "vtopctl cert issue"},
		{"the client does not know the node's authority", identity(t, ca, node), identity(t, other, eve), CodeCertificate,
			"certificate of vtop://node/a: x509: certificate signed by unknown authority: it is none of those in --tls-ca", "ca.crt"},
		{"the node has an operator's certificate", identity(t, ca, eve), identity(t, ca, eve), CodeCertificate, "certificate of vtop://operator/eve: x509: certificate specifies an incompatible key usage", "vtopctl cert issue NODE"},
	} {
		bytes := 1 << 20
		if row.client == nil || row.server == nil {
			bytes = 0
		}
		t.Run(row.name, func(t *testing.T) {
			for i := range 50 { // the alert races with the request, and a reset may take it away
				f := &fake{}
				c := port(t, f, row.server, row.client)
				c.alertTime = time.Minute // however busy the machine
				_, err := c.CreateTopic(context.Background(), CreateTopic{Name: strings.Repeat("x", 1+i%2*bytes)})
				var e *Error
				if !errors.As(err, &e) || e.Code != row.code || !strings.Contains(e.Message, row.message) || !strings.Contains(e.Hint, row.hint) || f.asked != "" {
					t.Fatalf("%#v, handler was asked %q", err, f.asked)
				}
			}
		})
	}
}
