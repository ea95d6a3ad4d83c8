package inspect

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop/transport/adminapi"
)

type fakeCert struct {
	from, to time.Time
	err      error
}

func (c fakeCert) NotBefore() time.Time { return c.from }
func (c fakeCert) NotAfter() time.Time  { return c.to }
func (c fakeCert) ReloadErr() error     { return c.err }

// S3: an operator hears of a certificate that ends while there is time, of one that has ended, and of files that are not taken; and of nothing else.
func TestCertificates_AreToldOfInTime(t *testing.T) {
	t0 := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	bad := errors.New("the key is another one")
	for _, c := range []struct {
		name       string
		valid, age time.Duration
		err        error
		kind, says string
	}{
		{"a year, fresh", 365 * day, 0, nil, "", ""},
		{"a year, fifteen days left", 365 * day, 350 * day, nil, "", ""},
		{"a year, fourteen days left", 365 * day, 351 * day, nil, kindCertEnding, "in 14 days"},
		{"a day, renewed each two thirds", day, 16 * time.Hour, nil, "", ""},
		{"a day, renewal is late", day, 20 * time.Hour, nil, kindCertEnding, "in 4h0m0s"},
		{"ended", day, day, nil, kindCertExpired, "has ended at 2030-01-02T00:00:00Z"},
		{"ended, and the new files are wrong", day, 2 * day, bad, kindCertExpired, "the key is another one"},
		{"half replaced", 365 * day, 0, bad, kindCertNotUsed, "until 2031-01-01T00:00:00Z: the key is another one"},
	} {
		f := New(nil, hclog.NewNullLogger())
		f.Shows("Kafka port", fakeCert{t0, t0.Add(c.valid), c.err})
		got := f.CertificateProblems(t0.Add(c.age))
		if c.kind == "" {
			if len(got) != 0 {
				t.Errorf("%s: %+v", c.name, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Kind != c.kind || got[0].Subject != "Kafka port" || !strings.Contains(got[0].Message, c.says) || got[0].Hint == "" {
			t.Errorf("%s: %+v, want %s that says %q", c.name, got, c.kind, c.says)
		}
	}
}

// A node that could not be asked for its certificate, or this one's, is told of by name; one that does not answer is no such case.
func TestCertificates_RefusalsAreToldOf(t *testing.T) {
	p, ok := refusedProblem("n3", adminapi.Errorf(adminapi.CodeCertificate, "it has expired").WithHint("renew"))
	if !ok || p.Kind != kindCertRefused || p.Subject != "n3" || p.Message != "it has expired" || p.Hint != "renew" {
		t.Errorf("%v %+v", ok, p)
	}
	if p, ok := refusedProblem("n3", adminapi.Errorf(adminapi.CodeUnreachable, "connection refused")); ok {
		t.Errorf("%+v", p)
	}
}
