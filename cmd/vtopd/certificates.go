package main

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// How often the certificates are looked at, and how often the log is told of the same trouble again.
const (
	certLook   = 5 * time.Second
	certRepeat = 6 * time.Hour
)

// certLog tells the log of what is wrong with the certificates: each trouble once, then again from time to time, and its end.
type certLog struct {
	log  hclog.Logger
	said map[string]certSaid // by the ports
}

type certSaid struct {
	kind string
	at   time.Time
}

func newCertLog(log hclog.Logger) *certLog {
	return &certLog{log: log, said: map[string]certSaid{}}
}

// tell is given all the problems of now.
func (c *certLog) tell(problems []adminapi.Problem, now time.Time) {
	bad := map[string]bool{}
	for _, p := range problems {
		bad[p.Subject] = true
		if last := c.said[p.Subject]; last.kind == p.Kind && now.Sub(last.at) < certRepeat {
			continue
		}
		c.said[p.Subject] = certSaid{p.Kind, now}
		c.log.Warn(p.Message, "ports", p.Subject, "hint", p.Hint)
	}
	for ports := range c.said {
		if !bad[ports] {
			delete(c.said, ports)
			c.log.Info("the certificate was renewed", "ports", ports)
		}
	}
}

// watchCertificates looks until ctx ends.
func (d *daemon) watchCertificates(ctx context.Context) {
	told := newCertLog(d.log)
	for {
		now := time.Now()
		told.tell(d.face.CertificateProblems(now), now)
		select {
		case <-ctx.Done():
			return
		case <-time.After(certLook):
		}
	}
}
