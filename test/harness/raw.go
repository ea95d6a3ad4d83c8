package harness

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/batch"
)

// Raw is a bare connection to a Kafka port: no retries, no metadata, requests in the order given. It serves the
// tests that must know what one node answered.
type Raw struct {
	Conn net.Conn
	corr int32
	sent []kmsg.Request
	fmt  *kmsg.RequestFormatter
}

// DialRaw connects.
func DialRaw(t testing.TB, addr string) *Raw {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &Raw{Conn: conn, fmt: kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw"))}
}

// Send writes a request and doesn't wait.
func (r *Raw) Send(req kmsg.Request) error {
	r.corr++
	r.sent = append(r.sent, req)
	_, err := r.Conn.Write(r.fmt.AppendRequest(nil, req, r.corr))
	return err
}

// Receive reads the answer to the oldest request that has none.
func (r *Raw) Receive(limit time.Duration) (kmsg.Response, error) {
	req := r.sent[0]
	r.sent = r.sent[1:]
	if err := r.Conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(r.Conn, head[:]); err != nil {
		return nil, err
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < 4 || size > 64<<20 {
		return nil, fmt.Errorf("answer of %d bytes", size)
	}
	body := make([]byte, size-4)
	if _, err := io.ReadFull(r.Conn, body); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	if resp.IsFlexible() && req.Key() != 18 && len(body) > 0 {
		body = body[1:] // the empty tags of the header
	}
	return resp, resp.ReadFrom(body)
}

// Ask sends and receives.
func (r *Raw) Ask(req kmsg.Request, limit time.Duration) (kmsg.Response, error) {
	if err := r.Send(req); err != nil {
		return nil, err
	}
	return r.Receive(limit)
}

// ProduceRequest makes a request with one batch that holds one record, the payload of id.
func ProduceRequest(topic string, index int32, acks int16, id uint64) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(9)
	req.Acks, req.TimeoutMillis = acks, 30_000
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition = index
	part.Records = batch.Build(batch.Spec{Records: []batch.Record{{Timestamp: time.Now().UnixMilli(), Value: Payload(id, 64)}}})
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.Partitions = topic, []kmsg.ProduceRequestTopicPartition{part}
	req.Topics = append(req.Topics, t)
	return req
}

// Produced gives the error code and offset of an answer to ProduceRequest.
func Produced(resp kmsg.Response) (code int16, offset int64, err error) {
	p, ok := resp.(*kmsg.ProduceResponse)
	if !ok || len(p.Topics) != 1 || len(p.Topics[0].Partitions) != 1 {
		return 0, 0, fmt.Errorf("not the answer of one range: %T", resp)
	}
	return p.Topics[0].Partitions[0].ErrorCode, p.Topics[0].Partitions[0].BaseOffset, nil
}
