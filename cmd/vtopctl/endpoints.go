package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vtop-log/vtop/transport/adminapi"
	"github.com/vtop-log/vtop/transport/tlsid"
)

const (
	// dialTime is how long an endpoint may take to answer before the next one is tried.
	dialTime = 2 * time.Second
	// askTime bounds a question that any node can answer, askLong one that changes the cluster.
	askTime = 10 * time.Second
	askLong = 50 * time.Second
)

// identity loads the TLS identity; nil without one. It refuses half of one.
func (o *options) identity() (*tlsid.Identity, error) {
	if o.tls == (tlsid.Files{}) {
		return nil, nil
	}
	if o.tls.Cert == "" || o.tls.Key == "" || o.tls.CA == "" {
		return nil, usagef("--tls-cert, --tls-key and --tls-ca go together: give all three or none")
	}
	id, err := tlsid.Load(o.tls)
	var stranger x509.UnknownAuthorityError
	if errors.As(err, &stranger) {
		return nil, &exitError{exitRefused, fmt.Errorf("%w: no node would take it: have the cluster's authority issue one with vtopctl cert issue NAME --operator", err)}
	}
	return id, err
}

// endpoints splits --endpoint.
func (o *options) endpoints() ([]string, error) {
	var out []string
	for _, e := range strings.Split(o.endpoint, ",") {
		if e = strings.TrimSpace(e); e == "" {
			continue
		}
		if e = withPort(e); !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	if len(out) == 0 {
		return nil, usagef("--endpoint %q names no endpoint: want HOST or HOST:PORT, or several with commas between them", o.endpoint)
	}
	return out, nil
}

// withPort adds the admin port's default to a host that has none.
func withPort(endpoint string) string {
	host := endpoint
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	if _, err := netip.ParseAddr(host); err == nil || !strings.Contains(endpoint, ":") {
		return net.JoinHostPort(host, defaultPort)
	}
	return endpoint
}

// client speaks to the first endpoint whose node answers and knows the cluster, the last one if none does; with one endpoint it asks nothing
// yet. It is for calls that are made once.
func (o *options) client() (*adminapi.Client, error) {
	id, err := o.identity()
	if err != nil {
		return nil, err
	}
	all, err := o.endpoints()
	if err != nil {
		return nil, err
	}
	for _, e := range all[:len(all)-1] {
		c := adminapi.NewClient(e, id)
		ctx, cancel := context.WithTimeout(context.Background(), dialTime)
		_, err := c.Topics(ctx)
		cancel()
		if err == nil || !elsewhere(err) {
			return c, nil
		}
	}
	return adminapi.NewClient(all[len(all)-1], id), nil
}

// fleet asks one node after the other until one answers: every node answers the same, and the one that was asked may
// die while a long job goes on. It is for calls that may be made twice, and safe for concurrent use.
type fleet struct {
	id *tlsid.Identity

	mu        sync.Mutex
	endpoints []string
	clients   map[string]*adminapi.Client
	// at is the endpoint that answered last.
	at int
}

func (o *options) fleet() (*fleet, error) {
	id, err := o.identity()
	if err != nil {
		return nil, err
	}
	all, err := o.endpoints()
	if err != nil {
		return nil, err
	}
	return &fleet{id: id, endpoints: all, clients: map[string]*adminapi.Client{}}, nil
}

func (f *fleet) client(endpoint string) *adminapi.Client {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.clients[endpoint]
	if c == nil {
		c = adminapi.NewClient(endpoint, f.id)
		f.clients[endpoint] = c
	}
	return c
}

// learn adds the admin ports of all nodes, if one of them tells.
func (f *fleet) learn(ctx context.Context) {
	nodes, err := ask(ctx, f, askTime, func(ctx context.Context, c *adminapi.Client) ([]adminapi.Node, error) { return c.Nodes(ctx) })
	if err != nil {
		return // the endpoints that were given remain
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range nodes {
		if n.AdminAddr != "" && n.State != "gone" && !slices.Contains(f.endpoints, n.AdminAddr) {
			f.endpoints = append(f.endpoints, n.AdminAddr)
		}
	}
}

// order gives the endpoints, and the place of the one that answered last.
func (f *fleet) order() (endpoints []string, at int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.endpoints), f.at
}

func (f *fleet) answered(at int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = at
}

// ask makes a call at one endpoint after the other, from the one that answered last, until a node answers that can:
// limit bounds each of them. The error is the most telling one.
func ask[T any](ctx context.Context, f *fleet, limit time.Duration, call func(context.Context, *adminapi.Client) (T, error)) (T, error) {
	var told error
	endpoints, first := f.order()
	for i := range endpoints {
		at := (first + i) % len(endpoints)
		one, cancel := context.WithTimeout(ctx, limit)
		v, err := call(one, f.client(endpoints[at]))
		cancel()
		if err == nil || ctx.Err() != nil || !elsewhere(err) {
			f.answered(at)
			return v, err
		}
		if told == nil || hasCode(told, adminapi.CodeUnreachable) && !hasCode(err, adminapi.CodeUnreachable) {
			told = err
		}
	}
	var none T
	return none, told
}

// elsewhere reports whether another node may answer what this one did not.
func elsewhere(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || hasCode(err, adminapi.CodeUnreachable, adminapi.CodeCertificate, adminapi.CodeNotReady, adminapi.CodeUnavailable, adminapi.CodeTimeout)
}

func hasCode(err error, codes ...adminapi.Code) bool {
	var e *adminapi.Error
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}
