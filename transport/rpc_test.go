package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
	"github.com/vtop-log/vtop/transport/tlsid"
	"github.com/vtop-log/vtop/transport/transporttest"
)

// echo is a handler that answers with what it was asked, or with err.
type echo struct {
	Refuser
	err  error
	mu   sync.Mutex
	from Caller
}

func (e *echo) Identify(_ context.Context, from Caller, _ *peerpb.IdentifyRequest) (*peerpb.IdentifyResponse, error) {
	return &peerpb.IdentifyResponse{Node: &peerpb.NodeInfo{Name: "answer to " + string(from.Name)}}, e.err
}

func (e *echo) Propose(_ context.Context, from Caller, req *peerpb.ProposeRequest) (*peerpb.ProposeResponse, error) {
	e.mu.Lock()
	e.from = from
	e.mu.Unlock()
	return &peerpb.ProposeResponse{Outcome: req.GetCommand(), Index: 42}, e.err
}

func (e *echo) Fence(_ context.Context, _ Caller, req *peerpb.FenceRequest) (*peerpb.FenceResponse, error) {
	resp := &peerpb.FenceResponse{}
	for _, item := range req.GetItems()[1:] { // one short
		resp.Results = append(resp.Results, &peerpb.FenceResult{Promised: item.GetEpoch()})
	}
	return resp, nil
}

func (e *echo) ReadLog(_ context.Context, _ Caller, req *peerpb.ReadLogRequest) (*peerpb.ReadLogResponse, error) {
	return &peerpb.ReadLogResponse{Batches: bytes.Repeat([]byte{7}, int(req.GetMaxBytes()))}, nil
}

func TestCall_CarriesBytesAndCaller(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, b := w.node("a", clusterA), w.node("b", clusterA)
		h := &echo{}
		b.SetHandler(h)
		resp, err := a.client.Propose(limit(t), b.target(), &peerpb.ProposeRequest{Command: []byte("grant")})
		must(t, err)
		if string(resp.GetOutcome()) != "grant" || resp.GetIndex() != 42 {
			t.Fatalf("answer %v", resp)
		}
		if want := *a.self.Load(); h.from.Self != want || h.from.Proven != (w.ca != nil) {
			t.Fatalf("caller %+v, want %+v", h.from, want)
		}
		// Case: an answer larger than a control call may have.
		bulk, err := a.client.ReadLog(limit(t), b.target(), &peerpb.ReadLogRequest{MaxBytes: MaxMessage + 1})
		must(t, err)
		if len(bulk.GetBatches()) != MaxMessage+1 {
			t.Fatalf("%d bytes", len(bulk.GetBatches()))
		}
		// Case: results that do not match the items are not believed.
		_, err = a.client.Fence(limit(t), b.target(), &peerpb.FenceRequest{Items: []*peerpb.FenceItem{{}, {}}})
		if !errors.Is(err, ErrInvalid) {
			t.Fatalf("short fence answer: %v", err)
		}
	})
}

func TestCall_ErrorsKeepIdentityAndText(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, b := w.node("a", clusterA), w.node("b", clusterA)
		for _, row := range codes {
			if row.err == context.DeadlineExceeded || row.err == context.Canceled {
				continue
			}
			b.SetHandler(&echo{err: fmt.Errorf("range x/1: wanted 7, found 8: %w", row.err)})
			_, err := a.client.Propose(limit(t), b.target(), &peerpb.ProposeRequest{})
			if !errors.Is(err, row.err) || !strings.Contains(err.Error(), "range x/1: wanted 7, found 8") || !strings.Contains(err.Error(), `node "b"`) {
				t.Errorf("%s came back as %v", row.code, err)
			}
			if Retryable(err) != row.retry {
				t.Errorf("%s: retryable %v, want %v", row.code, Retryable(err), row.retry)
			}
			for _, other := range codes {
				if other.code != row.code && errors.Is(err, other.err) {
					t.Errorf("%s matches %s too", row.code, other.code)
				}
			}
		}
		// Case: an error that is in no table.
		b.SetHandler(&echo{err: errors.New("odd")})
		_, err := a.client.Propose(limit(t), b.target(), &peerpb.ProposeRequest{})
		if err == nil || CodeOf(err) != peerpb.Code_CODE_INTERNAL || !strings.Contains(err.Error(), "odd") {
			t.Errorf("odd error came back as %v", err)
		}
		// Case: a fence error is the sentinel's.
		b.SetHandler(&echo{err: &vtop.FencedError{Claimed: 3, Reason: "lease moved"}})
		if _, err = a.client.Propose(limit(t), b.target(), &peerpb.ProposeRequest{}); !errors.Is(err, vtop.ErrFenced) {
			t.Errorf("fenced came back as %v", err)
		}
	})
}

func TestCall_NotRaftLeaderNamesTheLeader(t *testing.T) {
	w := newWorld(t, false)
	a, b := w.node("a", clusterA), w.node("b", clusterA)
	hint := &peerpb.LeaderHint{Name: "c", PeerAddr: "10.0.0.3:9640"}
	b.SetHandler(Refuser{Err: NotRaftLeader("b", hint)})
	_, err := a.client.Propose(limit(t), b.target(), &peerpb.ProposeRequest{})
	if !errors.Is(err, ErrNotRaftLeader) || LeaderOf(err).GetPeerAddr() != hint.PeerAddr {
		t.Fatalf("%v, leader %v", err, LeaderOf(err))
	}
	b.SetHandler(Refuser{Err: NotRaftLeader("b", nil)})
	if _, err = a.client.Propose(limit(t), b.target(), &peerpb.ProposeRequest{}); LeaderOf(err) != nil {
		t.Fatalf("leader %v out of nothing", LeaderOf(err))
	}
}

func TestCall_RefusedUntilSomebodyAnswers(t *testing.T) {
	w := newWorld(t, false)
	a, b := w.node("a", clusterA), w.node("b", clusterA)
	_, err := a.client.ReadIndex(limit(t), b.target(), &peerpb.ReadIndexRequest{})
	if !errors.Is(err, ErrUnimplemented) {
		t.Fatalf("before SetHandler: %v", err)
	}
	b.SetHandler(Join(nil, nil, nil))
	if _, err = a.client.Drain(limit(t), b.target(), &peerpb.DrainRequest{}); !errors.Is(err, ErrUnimplemented) {
		t.Fatalf("missing side: %v", err)
	}
}

func TestCall_BeforeThereIsACluster(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, b := w.node("a", vtop.ClusterID{}), w.node("b", clusterA)
		b.SetHandler(&echo{})
		// The name is not known yet, only an address.
		resp, err := a.client.Identify(limit(t), Target{Addr: b.target().Addr}, &peerpb.IdentifyRequest{})
		must(t, err)
		if resp.GetNode().GetName() != "answer to a" {
			t.Fatalf("answer %v", resp)
		}
		if _, err = a.client.Propose(limit(t), b.target(), &peerpb.ProposeRequest{}); !errors.Is(err, vtop.ErrNotReady) {
			t.Fatalf("propose without a cluster: %v", err)
		}
		if _, err = a.dialer.DialStream(limit(t), b.target(), Heartbeat); !errors.Is(err, vtop.ErrNotReady) {
			t.Fatalf("stream without a cluster: %v", err)
		}
	})
}

// TestStrangers_AreRefusedWithBothSidesNamed: two clusters never melt together (H2), nor two generations, and
// a recycled address leads nowhere.
func TestStrangers_AreRefusedWithBothSidesNamed(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		b := w.node("b", clusterB)
		b.SetHandler(&echo{})
		b.serve(Heartbeat, func(context.Context, *Stream) { t.Error("stream reached the node") })
		recovered := w.node("r", clusterB)
		recovered.self.Store(&Self{Name: "r", Cluster: clusterB, Generation: 1})
		for _, row := range []struct {
			name  string
			from  *node
			to    Target
			want  error
			texts []string
		}{
			{"another cluster", w.node("a", clusterA), b.target(), ErrWrongCluster, []string{clusterA.String(), clusterB.String(), `"a"`, `"b"`}},
			{"another cluster at a recycled address", w.node("a", clusterA), Target{Addr: b.target().Addr}, ErrWrongCluster, []string{clusterA.String(), clusterB.String()}},
			{"another generation", recovered, b.target(), ErrWrongGeneration, []string{"generation 1", "generation 0"}},
			{"another node", w.node("c", clusterB), Target{Name: "x", Addr: b.target().Addr}, ErrWrongNode, []string{"x", "b"}},
		} {
			t.Run(row.name, func(t *testing.T) {
				_, rpc := row.from.client.Identify(limit(t), row.to, &peerpb.IdentifyRequest{})
				_, stream := row.from.dialer.DialStream(limit(t), row.to, Heartbeat)
				_, raft := row.from.Raft().DialTarget(limit(t), row.to)
				for what, err := range map[string]error{"call": rpc, "stream": stream, "raft": raft} {
					if !errors.Is(err, row.want) {
						t.Errorf("%s: %v, want %v", what, err, row.want)
						continue
					}
					for _, text := range row.texts {
						if !strings.Contains(err.Error(), text) {
							t.Errorf("%s: %q does not name %q", what, err, text)
						}
					}
				}
			})
		}
	})
}

func TestCertificate_BindsTheName(t *testing.T) {
	w, other := newWorld(t, true), newWorld(t, true)
	b := w.node("b", clusterA)
	b.SetHandler(&echo{})
	b.serve(Heartbeat, func(context.Context, *Stream) { t.Error("stream reached the node") })

	// Case: a node that calls itself by another name than its certificate does.
	liar := w.node("a", clusterA)
	liar.self.Store(&Self{Name: "c", Cluster: clusterA})
	refusedBy(t, "false name", liar, b, ErrWrongNode)
	// Case: a certificate of another authority.
	refusedBy(t, "other authority", other.node("a", clusterA), b, nil)
	// Case: an operator's certificate is for the admin port only.
	operator := w.node("d", clusterA)
	operator.client.opt.TLS = w.identity(tlsid.Subject{Role: tlsid.Operator, Name: "d"})
	operator.dialer.opt.TLS = operator.client.opt.TLS
	operator.raft.dialer.opt.TLS = operator.client.opt.TLS
	refusedBy(t, "operator", operator, b, nil)
	// Case: no TLS at all, either way.
	plain := newWorld(t, false).node("p", clusterA)
	refusedBy(t, "plaintext to TLS", plain, b, nil)
	refusedBy(t, "TLS to plaintext", w.node("e", clusterA), plain, nil)
	// Case: the options of a node with somebody else's certificate.
	opt := b.opt
	opt.Self = func() Self { return Self{Name: "z"} }
	if _, err := NewClient(opt); err == nil || !strings.Contains(err.Error(), `"z"`) || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("certificate of another node: %v", err)
	}
}

func refusedBy(t *testing.T, what string, from, to *node, want error) {
	t.Helper()
	_, rpc := from.client.Identify(limit(t), to.target(), &peerpb.IdentifyRequest{})
	_, stream := from.dialer.DialStream(limit(t), to.target(), Heartbeat)
	_, raft := from.Raft().DialTarget(limit(t), to.target())
	for plane, err := range map[string]error{"call": rpc, "stream": stream, "raft": raft} {
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s, %s: %v, want %v", what, plane, err, want)
		}
		t.Logf("%s, %s: %v", what, plane, err)
	}
}

func TestAdmit_HasTheLastWord(t *testing.T) {
	w := newWorld(t, false)
	b := w.node("b", clusterA, func(o *Options) {
		o.Admit = func(c Caller) error {
			if c.Incarnation < 8 {
				return refusef(vtop.ErrFenced, "incarnation %d of node %q is over", c.Incarnation, c.Name)
			}
			return nil
		}
	})
	refusedBy(t, "old incarnation", w.node("a", clusterA), b, vtop.ErrFenced)
}

func TestCall_UnreachableSaysThatNothingWasSent(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, b := w.node("a", clusterA), Target{Name: "b", Addr: transporttest.RefusingAddr(t)}
		_, err := a.client.Propose(limit(t), b, &peerpb.ProposeRequest{})
		if !errors.Is(err, ErrUnreachable) || !errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, vtop.ErrTimeout) {
			t.Errorf("call: %v", err)
		}
		if _, err = a.dialer.DialStream(limit(t), b, Heartbeat); !errors.Is(err, ErrUnreachable) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("stream: %v", err)
		}
	})
}

// waiter answers nothing until its context ends.
type waiter struct {
	Refuser
	entered chan struct{}
}

func (h waiter) Propose(ctx context.Context, _ Caller, _ *peerpb.ProposeRequest) (*peerpb.ProposeResponse, error) {
	h.entered <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestCall_OutcomeUnknownWhenItIs(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, b := w.node("a", clusterA), w.node("b", clusterA)
		h := waiter{entered: make(chan struct{}, 1)}
		b.SetHandler(h)
		// Case: the caller gives up; the handler learns of it, or Close would hang at the end.
		ctx, cancel := context.WithCancel(limit(t))
		go func() { <-h.entered; cancel() }()
		_, err := a.client.Propose(ctx, b.target(), &peerpb.ProposeRequest{})
		if !errors.Is(err, vtop.ErrTimeout) || !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		// Case: the node closes under a call.
		go func() { <-h.entered; _ = b.Close() }() // closed again at the end
		_, err = a.client.Propose(limit(t), b.target(), &peerpb.ProposeRequest{})
		if err == nil || errors.Is(err, ErrUnreachable) || !Retryable(err) {
			t.Errorf("node closed: %v", err)
		}
	})
}

func TestCall_TooManyAreRefused(t *testing.T) {
	w := newWorld(t, false)
	a, b := w.node("a", clusterA), w.node("b", clusterA)
	b.SetHandler(&echo{})
	b.calls.Store(maxCalls)
	_, err := a.client.Propose(limit(t), b.target(), &peerpb.ProposeRequest{})
	if !errors.Is(err, vtop.ErrOverloaded) {
		t.Fatalf("call %d: %v", maxCalls+1, err)
	}
	b.calls.Store(0)
	_, err = a.client.Propose(limit(t), b.target(), &peerpb.ProposeRequest{})
	must(t, err)
}

func TestCall_TooLargeIsRefused(t *testing.T) {
	w := newWorld(t, false)
	a, b := w.node("a", clusterA), w.node("b", clusterA)
	b.SetHandler(&echo{})
	_, err := a.client.Propose(limit(t), b.target(), &peerpb.ProposeRequest{Command: make([]byte, MaxMessage+1)})
	if !errors.Is(err, ErrInvalid) || Retryable(err) {
		t.Fatalf("request of more than %d bytes: %v", MaxMessage, err)
	}
	_, err = a.client.Propose(limit(t), b.target(), &peerpb.ProposeRequest{Command: make([]byte, MaxMessage-100)})
	must(t, err)
	// Case: what costs more decoded than on the wire has a lower cap.
	_, err = a.client.Join(limit(t), b.target(), &peerpb.JoinRequest{LostReason: strings.Repeat("x", MaxControl+1)})
	if !errors.Is(err, ErrInvalid) || Retryable(err) {
		t.Fatalf("request of more than %d bytes: %v", MaxControl, err)
	}
}
