package inspect

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// Kinds of problems with certificates.
const (
	kindCertEnding  = "certificate_ending"
	kindCertExpired = "certificate_expired"
	kindCertNotUsed = "certificate_not_used"
	kindCertRefused = "certificate_refused"
)

// A certificate is told of when a fifth of its time is left, and fourteen days at most: time enough to renew it by hand, and none that is
// renewed by itself is told of before that is late.
const (
	certShare  = 5
	certNotice = 14 * 24 * time.Hour
)

// Certificate is what a port shows: a tlsid.Identity or a kafka.TLS. Its methods look at the files, as a handshake does.
type Certificate interface {
	NotBefore() time.Time
	NotAfter() time.Time
	// ReloadErr says why the files on disk are not in use; nil if they are.
	ReloadErr() error
}

// portCertificate is a certificate and where it is shown.
type portCertificate struct {
	ports string
	cert  Certificate
}

// Shows tells of a certificate and of where it is shown ("peer and admin ports"). It is called before the face serves.
func (f *Face) Shows(ports string, cert Certificate) {
	f.certs = append(f.certs, portCertificate{ports, cert})
}

// CertificateProblems are those of now: files that are not taken, and certificates that have ended or will soon. The subjects are the ports.
func (f *Face) CertificateProblems(now time.Time) []adminapi.Problem {
	var out []adminapi.Problem
	for _, pc := range f.certs {
		if p, ok := certificateProblem(pc.cert, now); ok {
			p.Subject = pc.ports
			out = append(out, p)
		}
	}
	return out
}

func certificateProblem(cert Certificate, now time.Time) (adminapi.Problem, bool) {
	const renew = "give it new files, as from vtopctl cert issue: they are taken up without a restart"
	end := cert.NotAfter()
	left, when := end.Sub(now), end.UTC().Format(time.RFC3339)
	notice := min(certNotice, end.Sub(cert.NotBefore())/certShare)
	err := cert.ReloadErr()
	switch {
	case left <= 0:
		p := adminapi.Problem{Kind: kindCertExpired, Hint: renew, Message: fmt.Sprintf("the certificate has ended at %s: whoever connects anew is refused or refuses it, connections that stand go on", when)}
		if err != nil {
			p.Message += fmt.Sprintf("; the files on disk are not in use: %v", err)
		}
		return p, true
	case err != nil:
		return adminapi.Problem{Kind: kindCertNotUsed, Message: fmt.Sprintf("the files on disk are not in use, those before are, until %s: %v", when, err), Hint: "put certificate and key of one pair there: they are looked at with each connection"}, true
	case left <= notice:
		return adminapi.Problem{Kind: kindCertEnding, Message: fmt.Sprintf("the certificate ends at %s, in %s", when, roughly(left)), Hint: renew}, true
	}
	return adminapi.Problem{}, false
}

// refusedProblem is what a node shows that was asked and has another certificate than this one takes, or takes another.
func refusedProblem(node vtop.NodeName, err error) (adminapi.Problem, bool) {
	var e *adminapi.Error
	if !errors.As(err, &e) || e.Code != adminapi.CodeCertificate {
		return adminapi.Problem{}, false
	}
	return adminapi.Problem{Kind: kindCertRefused, Subject: string(node), Message: e.Message, Hint: e.Hint}, true
}

// roughly is a duration as a person would say it.
func roughly(d time.Duration) string {
	if days := d / (24 * time.Hour); days >= 2 {
		return fmt.Sprintf("%d days", days)
	}
	return d.Round(time.Second).String()
}

// CertificateMetrics are of the certificate of the peer and admin ports.
func CertificateMetrics(cert Certificate) []prometheus.Collector {
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "vtop_" + name, Help: help}, f)
	}
	return []prometheus.Collector{
		gauge("tls_certificate_expiry_seconds", "When the certificate of the peer and admin ports ends, in Unix seconds.", func() float64 { return float64(cert.NotAfter().Unix()) }),
		gauge("tls_reload_failing", "1 while the certificate files on disk can't be used and those before are.", func() float64 { return truth(cert.ReloadErr() != nil) }),
	}
}
