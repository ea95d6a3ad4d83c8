package inspect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
	"github.com/vtop-log/vtop/transport/tlsid"
)

// askTimeout bounds the questions to other nodes: who does not answer by then is shown as unknown.
const askTimeout = time.Second

// Face is the admin port's Handler.
type Face struct {
	tls    *tlsid.Identity
	log    hclog.Logger
	node   atomic.Pointer[cluster.Node]
	status atomic.Pointer[string]
	drills atomic.Pointer[Drills]
	// hashing is held by whoever hashes the metadata.
	hashing sync.Mutex
	certs   []portCertificate // not changed once the face serves

	mu      sync.Mutex
	clients map[string]*adminapi.Client
}

var (
	_ adminapi.Handler      = (*Face)(nil)
	_ adminapi.LocalHandler = (*Face)(nil)
)

// New makes a face without a node: it says that it is starting.
func New(id *tlsid.Identity, log hclog.Logger) *Face {
	f := &Face{tls: id, log: log.Named("admin"), clients: map[string]*adminapi.Client{}}
	f.SetStatus("starting")
	return f
}

// SetStatus says why there is no node yet.
func (f *Face) SetStatus(why string) { f.status.Store(&why) }

// Attach gives the face its node.
func (f *Face) Attach(n *cluster.Node) { f.node.Store(n) }

// attached returns the node, or a refusal that says what it waits for.
func (f *Face) attached() (*cluster.Node, error) {
	if n := f.node.Load(); n != nil {
		return n, nil
	}
	return nil, adminapi.Errorf(adminapi.CodeNotReady, "%s", *f.status.Load())
}

// ready returns the node once it has caught up with the metadata.
func (f *Face) ready() (*cluster.Node, error) {
	n, err := f.attached()
	if err != nil {
		return nil, err
	}
	if err := n.Ready(); err != nil {
		return nil, adminapi.Errorf(adminapi.CodeNotReady, "%v", err).WithHint("ask again soon, or ask another node")
	}
	return n, nil
}

// ServeHealthz answers 200 while the process works.
func (f *Face) ServeHealthz(w http.ResponseWriter, _ *http.Request) {
	_, _ = fmt.Fprintln(w, "ok")
}

// ServeReadyz answers 200 once the node has joined, has caught up and knows a Raft leader; else 503 and what it waits for.
func (f *Face) ServeReadyz(w http.ResponseWriter, _ *http.Request) {
	n, err := f.ready()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if _, ok := n.RaftLeader(); !ok {
		http.Error(w, "no Raft leader is known: a majority of the Raft voters must run and reach one another", http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ready")
}

// clientOf returns a client for the admin port of a node.
func (f *Face) clientOf(addr string) *adminapi.Client {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.clients[addr]
	if c == nil {
		c = adminapi.NewClient(addr, f.tls)
		f.clients[addr] = c
	}
	return c
}

// survey asks every node that is not gone what it alone knows. Who does not answer has no entry, and is among the refused if that is for a certificate.
func (f *Face) survey(ctx context.Context, n *cluster.Node, topic string) (out map[vtop.NodeName]*adminapi.Local, refused []adminapi.Problem) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out = map[vtop.NodeName]*adminapi.Local{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for node := range n.State().Nodes() {
		if node.State == fsm.NodeGone {
			continue
		}
		wg.Go(func() {
			local, err := f.ask(ctx, n, node, topic)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				f.log.Debug("node did not answer", "node", node.Name, "error", err)
				if p, ok := refusedProblem(node.Name, err); ok {
					refused = append(refused, p)
				}
				return
			}
			out[node.Name] = local
		})
	}
	wg.Wait()
	return out, refused
}

func (f *Face) ask(ctx context.Context, n *cluster.Node, node *fsm.Node, topic string) (*adminapi.Local, error) {
	if node.Name == n.Self() {
		return f.Local(ctx, topic)
	}
	if node.Addresses.Admin == "" {
		return nil, errors.New("no admin address is known")
	}
	local, err := f.clientOf(node.Addresses.Admin).Local(ctx, topic)
	if err == nil && local.Node != string(node.Name) {
		return nil, fmt.Errorf("the admin address %s is answered by node %q", node.Addresses.Admin, local.Node)
	}
	return local, err
}

// refusal turns the errors of the layers below into what operators read.
func refusal(err error) error {
	var r *fsm.Refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &r):
		switch r.Code {
		case fsm.CodeTopicExists:
			return adminapi.Errorf(adminapi.CodeExists, "%s", r.Message)
		case fsm.CodeUnknownRange, fsm.CodeUnknownNode:
			return adminapi.Errorf(adminapi.CodeNotFound, "%s", r.Message)
		case fsm.CodeInvalid, fsm.CodeLimit:
			return adminapi.Errorf(adminapi.CodeInvalid, "%s", r.Message)
		case fsm.CodeStaleConfig, fsm.CodeStaleEpoch, fsm.CodeStaleIncarnation, fsm.CodeStaleStep:
			return adminapi.Errorf(adminapi.CodeConflict, "%s", r.Message).WithHint("the state has moved meanwhile: look again, then decide")
		}
		return adminapi.Errorf(adminapi.CodeConflict, "%s", r.Message) // the message says what is in the way
	case errors.Is(err, vtop.ErrUnknownRange):
		return adminapi.Errorf(adminapi.CodeNotFound, "%v", err)
	case errors.Is(err, vtop.ErrTimeout):
		return adminapi.Errorf(adminapi.CodeTimeout, "%v", err).WithHint("the outcome is unknown: look at the state, then try again")
	case errors.Is(err, vtop.ErrNotReady), errors.Is(err, vtop.ErrOverloaded):
		return adminapi.Errorf(adminapi.CodeUnavailable, "%v", err).WithHint("is there a Raft leader? see vtopctl status")
	}
	return err
}
