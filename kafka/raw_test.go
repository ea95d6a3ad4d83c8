package kafka

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/batch"
)

// hangs is when a test is ended that hangs. A machine that is busy may need many times what it needs alone.
const hangs = 2 * time.Minute

// rawConn is a client that does what no client library would.
type rawConn struct {
	net.Conn
	r    *bufio.Reader
	corr int32
}

func dial(t testing.TB, n *fakeNode) *rawConn {
	t.Helper()
	nc, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(hangs))
	return &rawConn{Conn: nc, r: bufio.NewReader(nc)}
}

func encodeRequest(req kmsg.Request, corr int32) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw")).AppendRequest(nil, req, corr)
}

func (c *rawConn) send(t testing.TB, reqs ...kmsg.Request) {
	t.Helper()
	var out []byte
	for _, req := range reqs {
		c.corr++
		out = append(out, encodeRequest(req, c.corr)...)
	}
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
}

// frame reads one answer and returns its correlation id and the rest.
func (c *rawConn) frame(t testing.TB) (int32, []byte) {
	t.Helper()
	var head [8]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		t.Fatalf("reading an answer: %v", err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:])-4)
	if _, err := io.ReadFull(c.r, body); err != nil {
		t.Fatal(err)
	}
	return int32(binary.BigEndian.Uint32(head[4:])), body
}

// receive reads the answer to a request.
func (c *rawConn) receive(t testing.TB, req kmsg.Request) (int32, kmsg.Response) {
	t.Helper()
	corr, body := c.frame(t)
	if req.IsFlexible() && req.Key() != keyApiVersions {
		if body[0] != 0 {
			t.Fatalf("the header's tag section is %d", body[0])
		}
		body = body[1:]
	}
	resp := req.ResponseKind()
	if err := resp.ReadFrom(body); err != nil {
		t.Fatalf("answer of %T: %v", req, err)
	}
	if again := resp.AppendTo(nil); len(again) != len(body) {
		t.Fatalf("answer of %T v%d has %d bytes, its encoding %d", req, req.GetVersion(), len(body), len(again))
	}
	return corr, resp
}

func (c *rawConn) ask(t testing.TB, req kmsg.Request) kmsg.Response {
	t.Helper()
	c.send(t, req)
	corr, resp := c.receive(t, req)
	if corr != c.corr {
		t.Fatalf("correlation id %d, want %d", corr, c.corr)
	}
	return resp
}

// closed waits for the server to end the connection.
func (c *rawConn) closed(t testing.TB) {
	t.Helper()
	if n, err := io.Copy(io.Discard, c.r); isTimeout(err) {
		t.Fatalf("the connection is still open after %d bytes", n)
	}
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

func (c *rawConn) initProducerID(t testing.TB, transactional string) int16 {
	t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version = 4
	req.TransactionalID = &transactional
	return c.ask(t, req).(*kmsg.InitProducerIDResponse).ErrorCode
}

// oneBatch is a batch of one record.
func oneBatch(value string, producer *batch.Producer) batch.Batch {
	return batch.Build(batch.Spec{Producer: producer, Records: []batch.Record{{Timestamp: 1, Value: []byte(value)}}})
}

func produceRequest(version int16, acks int16, topic string, index int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, acks, 10_000
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = index, records
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.Partitions = topic, []kmsg.ProduceRequestTopicPartition{rp}
	req.Topics = append(req.Topics, rt)
	return req
}

func produced(resp kmsg.Response) kmsg.ProduceResponseTopicPartition {
	return resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

func fetchRequest(version int16, topic string, index int32, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = version, 0, 1, 1<<20
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch, rp.LastFetchedEpoch = index, offset, 1<<20, -1, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.Partitions = topic, []kmsg.FetchRequestTopicPartition{rp}
	req.Topics = append(req.Topics, rt)
	return req
}

func fetched(resp kmsg.Response) kmsg.FetchResponseTopicPartition {
	return resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hangs); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// producerRequest is a Produce of one record to p/0 by an idempotent producer.
func producerRequest(id int64, epoch int16, sequence int32) *kmsg.ProduceRequest {
	return produceRequest(9, -1, "p", 0, oneBatch("x", &batch.Producer{ID: id, Epoch: epoch, Sequence: sequence}))
}
