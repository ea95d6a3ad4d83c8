package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
)

func TestConn_ProducesArePipelinedAndAnsweredInOrder(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 4)
	c.hold()
	conn := dial(t, c.nodes[0])
	const n = 8
	versions := kmsg.NewPtrApiVersionsRequest()
	versions.Version = 2
	reqs := []kmsg.Request{}
	for i := range n {
		reqs = append(reqs, produceRequest(7+int16(i%3), -1, "t", int32(i%4), oneBatch(fmt.Sprint(i), nil)))
	}
	reqs = append(reqs, versions)
	conn.send(t, reqs...)
	eventually(t, "all batches are admitted before one is acknowledged", func() bool { return c.appends.Load() == n })
	c.release(true) // the acknowledgements come in the opposite order
	for i, req := range reqs {
		corr, resp := conn.receive(t, req)
		if corr != int32(i+1) {
			t.Fatalf("answer %d is that of request %d", i+1, corr)
		}
		if i < n {
			if p := produced(resp); p.ErrorCode != 0 || p.BaseOffset != int64(i/4) {
				t.Errorf("request %d: code %d base %d", i+1, p.ErrorCode, p.BaseOffset)
			}
		}
	}
}

func TestConn_InFlightIsBounded(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.MaxInFlight = 4 })
	c.topic("t", 1)
	c.hold()
	conn := dial(t, c.nodes[0])
	var reqs []kmsg.Request
	for i := range 50 {
		reqs = append(reqs, produceRequest(7, -1, "t", 0, oneBatch(fmt.Sprint(i), nil)))
	}
	conn.send(t, reqs...)
	eventually(t, "requests are admitted", func() bool { return c.appends.Load() == 4 })
	other := dial(t, c.nodes[0])
	other.ask(t, fetchRequest(11, "t", 0, 0)) // others are served meanwhile
	if got := c.appends.Load(); got != 4 {
		t.Fatalf("%d requests of one connection are in flight, want 4 (I13)", got)
	}
	c.release(false)
	for i, req := range reqs {
		if corr, _ := conn.receive(t, req); corr != int32(i+1) {
			t.Fatalf("answer %d is that of request %d", i+1, corr)
		}
	}
}

func TestConn_RequestBudgetStopsReaders(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.MaxProduceFrame, cfg.RequestBytes = 4<<20, 4<<20 })
	c.topic("t", 1)
	s := c.nodes[0].server
	taken, err := s.requests.acquire(context.Background(), 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, c.nodes[0])
	big := produceRequest(7, -1, "t", 0, batch.Build(batch.Spec{Records: []batch.Record{{Value: make([]byte, 900<<10)}}}))
	conn.send(t, big)
	small := dial(t, c.nodes[0])
	small.ask(t, produceRequest(7, -1, "t", 0, oneBatch("small requests go on", nil)))
	if c.appends.Load() != 1 {
		t.Fatal("the large request was taken beyond the budget (I13)")
	}
	s.requests.release(taken)
	if _, resp := conn.receive(t, big); produced(resp).ErrorCode != 0 {
		t.Fatalf("code %d", produced(resp).ErrorCode)
	}
	eventually(t, "all of the budget is free", func() bool { return s.requests.used.Load() == 0 })
}

func TestConn_TooManyAreRefused(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.MaxConnections = 2 })
	a, b := dial(t, c.nodes[0]), dial(t, c.nodes[0])
	meta := kmsg.NewPtrMetadataRequest()
	a.ask(t, meta)
	b.ask(t, meta)
	dial(t, c.nodes[0]).closed(t)
	a.Close()
	eventually(t, "a place is free again", func() bool {
		s := c.nodes[0].server
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.conns) == 1
	})
	dial(t, c.nodes[0]).ask(t, meta)
}

func TestConn_IdleEndsButWaitingDoesNot(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.IdleTimeout = 50 * time.Millisecond })
	c.topic("t", 1)
	poll := fetchRequest(11, "t", 0, 0)
	poll.MaxWaitMillis = 400
	for try := 0; ; try++ {
		waiting := dial(t, c.nodes[0])
		waiting.Write(encodeRequest(poll, 1))
		if _, err := waiting.r.Peek(1); err != nil {
			if c.watched.Load() > 0 || try == 100 {
				t.Fatalf("the connection of a parked fetch has ended: %v", err)
			}
			continue // a client that is held up is idle before it has asked
		}
		if _, resp := waiting.receive(t, poll); fetched(resp).ErrorCode != 0 {
			t.Fatal("the parked fetch failed")
		}
		break
	}
	dial(t, c.nodes[0]).closed(t)
}

func TestConn_NoAckAndError_Closes(t *testing.T) {
	c := newFakeCluster(t, 2, nil)
	c.topic("t", 1)
	conn := dial(t, c.nodes[1]) // leads nothing
	conn.send(t, produceRequest(7, 0, "t", 0, oneBatch("x", nil)))
	conn.closed(t)
	ok := dial(t, c.nodes[0])
	ok.send(t, produceRequest(7, 0, "t", 0, oneBatch("x", nil)))
	if resp := ok.ask(t, fetchRequest(4, "t", 0, 0)); len(fetched(resp).RecordBatches) == 0 {
		t.Error("the first answer on the wire is not that of the fetch, or the record is not there")
	}
}

func TestServer_CloseAnswersWhatWasRead(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 1)
	c.hold()
	conn, parked := dial(t, c.nodes[0]), dial(t, c.nodes[0])
	req, poll := produceRequest(9, -1, "t", 0, oneBatch("x", nil)), fetchRequest(11, "t", 0, 0)
	poll.MaxWaitMillis = 60_000
	conn.send(t, req)
	parked.send(t, poll)
	eventually(t, "admitted and parked", func() bool { return c.appends.Load() == 1 && c.watched.Load() == 1 })
	done := make(chan error)
	go func() { done <- c.nodes[0].server.Close(testContext(t)) }()
	if _, resp := parked.receive(t, poll); fetched(resp).ErrorCode != 0 {
		t.Errorf("parked fetch: code %d", fetched(resp).ErrorCode)
	}
	c.release(false)
	if _, resp := conn.receive(t, req); produced(resp).ErrorCode != 0 {
		t.Errorf("produce in flight: code %d", produced(resp).ErrorCode)
	}
	conn.closed(t)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := c.nodes[0].server.Serve(nil2{}); !errors.Is(err, vtop.ErrClosed) {
		t.Errorf("Serve after Close: %v", err)
	}
}

func TestConn_ErrorFloodsArePaced(t *testing.T) {
	c := newFakeCluster(t, 2, nil)
	c.topic("t", 1)
	conn := dial(t, c.nodes[1]) // not the leader
	ask := func(n int) time.Duration {
		began := time.Now()
		for range n {
			if p := fetched(conn.ask(t, fetchRequest(11, "t", 0, 0))); p.ErrorCode != kerr.NotLeaderForPartition.Code {
				t.Fatalf("code %d", p.ErrorCode)
			}
		}
		return time.Since(began)
	}
	ask(patience + 1)
	// The pace is a lower bound: the answer after the last one was held back too.
	if took := ask(6); took < 5*errorPace {
		t.Errorf("6 more errors took %s only: a client without a pause floods the node (J4)", took)
	}
}

func TestConn_BytesOfWaitingRequestsAreBounded(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.MaxFrame = 64 << 10 })
	c.topic("t", 1)
	conn := dial(t, c.nodes[0])
	poll := fetchRequest(12, "t", 0, 0)
	poll.MaxWaitMillis = 60_000
	conn.send(t, poll)
	eventually(t, "parked", func() bool { return c.watched.Load() == 1 })
	big := metadataRequest(9, false, strings.Repeat("x", 60<<10)) // no topic has that name
	go func() {
		for i := range int32(20) {
			conn.Write(encodeRequest(big, i+2))
		}
	}()
	var server *serverConn
	eventually(t, "the reader stops", func() bool {
		s := c.nodes[0].server
		s.mu.Lock()
		defer s.mu.Unlock()
		for sc := range s.conns {
			server = sc
		}
		return server.held.Load() > 2*(64<<10)
	})
	if held := server.held.Load(); held > 4*(64<<10) {
		t.Errorf("%d bytes wait behind a parked fetch (I13)", held)
	}
	c.fill(t, "t", 0, 1, 10)
	conn.receive(t, poll)
	for range 20 {
		conn.receive(t, big)
	}
}

func TestAnswers_AreNotLargerForRepeatedNames(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 100)
	names := make([]string, 50_000)
	for i := range names {
		names[i] = "t"
	}
	conn := dial(t, c.nodes[0])
	if resp := conn.ask(t, metadataRequest(9, false, names...)).(*kmsg.MetadataResponse); len(resp.Topics) != 1 {
		t.Errorf("Metadata tells of one topic %d times", len(resp.Topics))
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version = 4
	for range names {
		req.Resources = append(req.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"})
	}
	if resp := conn.ask(t, req).(*kmsg.DescribeConfigsResponse); len(resp.Resources) != 1 {
		t.Errorf("DescribeConfigs tells of one topic %d times", len(resp.Resources))
	}
}

// serverConn is a conn where conn names a client.
type serverConn = conn
