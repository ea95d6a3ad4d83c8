package adminapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/vtop-log/vtop/transport/tlsid"
)

// maxAnswer bounds an answer in bytes.
const maxAnswer = 256 << 20

// Client calls the admin port of one node. Errors of the node are *Error; a node that cannot be reached gives
// an *Error with CodeUnreachable, one that shows or wants another certificate CodeCertificate. It is safe for concurrent use.
type Client struct {
	endpoint, base string
	id             *tlsid.Identity
	dialer         net.Dialer
	alertTime      time.Duration
	http           *http.Client
	// long is for answers that take as long as they take.
	long *http.Client
}

// NewClient is for the admin port at endpoint (host:port). With an identity it speaks TLS and accepts any
// node that the identity's authority knows.
func NewClient(endpoint string, id *tlsid.Identity) *Client {
	c := &Client{endpoint: endpoint, base: "http://" + endpoint, id: id, dialer: net.Dialer{Timeout: 5 * time.Second}, alertTime: alertTime}
	tr := &http.Transport{
		DialContext:         c.dialer.DialContext,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     30 * time.Second,
		TLSHandshakeTimeout: 5 * time.Second,
	}
	if id != nil {
		c.base = "https://" + endpoint
		tr.DialTLSContext = c.dialTLS
	}
	c.http = &http.Client{Transport: tr, Timeout: maxCallTime + 5*time.Second}
	c.long = &http.Client{Transport: tr}
	return c
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status calls GET /v1/status.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	out := new(Status)
	return out, c.do(ctx, http.MethodGet, "/v1/status", nil, out)
}

// Nodes calls GET /v1/nodes.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	var out []Node
	return out, c.do(ctx, http.MethodGet, "/v1/nodes", nil, &out)
}

// Topics calls GET /v1/topics.
func (c *Client) Topics(ctx context.Context) ([]Topic, error) {
	var out []Topic
	return out, c.do(ctx, http.MethodGet, "/v1/topics", nil, &out)
}

// Topic calls GET /v1/topics/{name}.
func (c *Client) Topic(ctx context.Context, name string) (*TopicDetail, error) {
	out := new(TopicDetail)
	return out, c.do(ctx, http.MethodGet, "/v1/topics/"+url.PathEscape(name), nil, out)
}

// CreateTopic calls POST /v1/topics.
func (c *Client) CreateTopic(ctx context.Context, req CreateTopic) (*TopicDetail, error) {
	out := new(TopicDetail)
	return out, c.do(ctx, http.MethodPost, "/v1/topics", req, out)
}

// DeleteTopic calls DELETE /v1/topics/{name}.
func (c *Client) DeleteTopic(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/topics/"+url.PathEscape(name), nil, &struct{}{})
}

// Leases calls GET /v1/leases, for one topic if it is not empty.
func (c *Client) Leases(ctx context.Context, topic string) ([]Lease, error) {
	var out []Lease
	path := "/v1/leases"
	if topic != "" {
		path += "?topic=" + url.QueryEscape(topic)
	}
	return out, c.do(ctx, http.MethodGet, path, nil, &out)
}

// Lease calls GET /v1/leases/{topic}/{n}.
func (c *Client) Lease(ctx context.Context, topic string, n int32) (*LeaseDetail, error) {
	out := new(LeaseDetail)
	return out, c.do(ctx, http.MethodGet, rangePath("/v1/leases", topic, n), nil, out)
}

// TransferLease calls POST /v1/leases/{topic}/{n}/transfer.
func (c *Client) TransferLease(ctx context.Context, topic string, n int32, to string) (*LeaseDetail, error) {
	out := new(LeaseDetail)
	return out, c.do(ctx, http.MethodPost, rangePath("/v1/leases", topic, n)+"/transfer", Transfer{To: to}, out)
}

// Segments calls GET /v1/segments/{topic}/{n}, at the holder's replica if node is empty.
func (c *Client) Segments(ctx context.Context, topic string, n int32, node string) ([]Segment, error) {
	var out []Segment
	path := rangePath("/v1/segments", topic, n)
	if node != "" {
		path += "?node=" + url.QueryEscape(node)
	}
	return out, c.do(ctx, http.MethodGet, path, nil, &out)
}

func rangePath(prefix, topic string, n int32) string {
	return prefix + "/" + url.PathEscape(topic) + "/" + strconv.Itoa(int(n))
}

func (c *Client) request(ctx context.Context, method, path string, in any) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, Errorf(CodeInvalid, "endpoint %s: %v", c.base, err).WithHint("an endpoint is HOST:PORT of a node's admin port")
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	req, err := c.request(ctx, method, path, in)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := c.read(resp, maxAnswer)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, out); err != nil {
		return Errorf(CodeInternal, "answer of %s is not of this version: %v", c.base, err).WithHint("is it the admin port of a vtopd of the same version?")
	}
	return nil
}

// read reads a whole answer, or what a refusal says.
func (c *Client) read(resp *http.Response, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil || int64(len(data)) > limit {
		return nil, Errorf(CodeUnreachable, "answer of %s broke off after %d bytes: %v", c.base, len(data), err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, c.refusal(resp, data)
	}
	return data, nil
}

// open posts a request whose answer is read while it comes. The caller closes the body.
func (c *Client) open(ctx context.Context, path string, in any) (io.ReadCloser, error) {
	req, err := c.request(ctx, http.MethodPost, path, in)
	if err != nil {
		return nil, err
	}
	resp, err := c.long.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		_, err = c.read(resp, maxBody)
		return nil, errors.Join(err, resp.Body.Close())
	}
	return resp.Body, nil
}

func (c *Client) unreachable(ctx context.Context, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("call to %s: %w", c.base, err)
	}
	if e := c.certificate(ctx, err); e != nil {
		return e
	}
	return Errorf(CodeUnreachable, "no answer from %s: %v", c.base, err).
		WithHint("is vtopd running there? say --endpoint HOST:PORT of a node's admin port, and --tls-* if it uses TLS")
}

func (c *Client) refusal(resp *http.Response, data []byte) error {
	e := new(Error)
	if err := json.Unmarshal(data, e); err != nil || e.Code == "" {
		return Errorf(CodeUnreachable, "%s answers %s, which vtopd would not", c.base, resp.Status).
			WithHint("is it the admin port of a vtopd? does it want TLS?")
	}
	return e
}
