package adminapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/vtop-log/vtop/transport/tlsid"
)

// CheckExposure refuses to open the admin port in plaintext to the network, unless the operator said so.
func CheckExposure(addr string, id *tlsid.Identity, allowPlaintext bool) error {
	return tlsid.CheckPlaintext("admin", addr, id, allowPlaintext)
}

// Listener is an open admin port.
type Listener struct {
	ln   net.Listener
	srv  *http.Server
	done chan error
}

// Listen opens the admin port: in TLS, for nodes and operators of the cluster, if id is set. The caller has
// asked CheckExposure. errLog may be nil.
func Listen(addr string, id *tlsid.Identity, h http.Handler, errLog *log.Logger) (*Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("admin port: %w", err)
	}
	l := &Listener{ln: ln, done: make(chan error, 1)}
	l.srv = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       2 * maxCallTime,
		WriteTimeout:      2 * maxCallTime,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          errLog,
	}
	serve := net.Listener(ln)
	if id != nil {
		serve = tls.NewListener(ln, id.ServerConfig([]tlsid.Role{tlsid.Node, tlsid.Operator}, "http/1.1"))
	}
	go func() { l.done <- l.srv.Serve(serve) }()
	return l, nil
}

// Addr is the bound address.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Close takes no more calls, waits for those that run until ctx ends, then cuts them.
func (l *Listener) Close(ctx context.Context) error {
	err := l.srv.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, l.srv.Close())
	}
	if serveErr := <-l.done; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}
