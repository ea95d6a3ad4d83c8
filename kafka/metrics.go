package kafka

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the client face's collectors. Their labels are bounded: the APIs served and Kafka's error codes.
type Metrics struct {
	requests      *prometheus.CounterVec   // by api
	latency       *prometheus.HistogramVec // by api
	errors        *prometheus.CounterVec   // by api and code
	bytesIn       prometheus.Counter
	bytesOut      prometheus.Counter
	conns         prometheus.Gauge
	refusedConns  prometheus.Counter
	badFrames     prometheus.Counter
	badHandshakes prometheus.Counter
	// throttled counts answers with a throttle time, throttleSeconds adds the times up.
	throttledVec, throttleVec  *prometheus.CounterVec // by request
	throttled, throttleSeconds [quotaKinds]prometheus.Counter

	names map[int16]string
	// byAPI are the children of requests and latency, so that a request looks up no label.
	byAPI map[int16]apiMetrics
	reg   prometheus.Registerer
}

type apiMetrics struct {
	requests prometheus.Counter
	latency  prometheus.Observer
}

// NewMetrics makes the collectors and registers them with reg, which serves one Server.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := newMetrics()
	m.reg = reg
	for _, c := range []prometheus.Collector{m.requests, m.latency, m.errors, m.bytesIn, m.bytesOut, m.conns, m.refusedConns, m.badFrames, m.badHandshakes, m.throttledVec, m.throttleVec} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func newMetrics() *Metrics {
	name := func(s string) string { return "vtop_kafka_" + s }
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: name("requests_total"), Help: "Requests answered, by api."}, []string{"api"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name("request_seconds"),
			Help:    "From the last byte of a request to its answer (the time that a Fetch waits for records is in it), by api.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 13)}, []string{"api"}),
		errors:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: name("errors_total"), Help: "Error codes answered, by api and Kafka's code."}, []string{"api", "code"}),
		bytesIn:       prometheus.NewCounter(prometheus.CounterOpts{Name: name("received_bytes_total"), Help: "Bytes of requests."}),
		bytesOut:      prometheus.NewCounter(prometheus.CounterOpts{Name: name("sent_bytes_total"), Help: "Bytes of answers."}),
		conns:         prometheus.NewGauge(prometheus.GaugeOpts{Name: name("connections"), Help: "Open client connections."}),
		refusedConns:  prometheus.NewCounter(prometheus.CounterOpts{Name: name("refused_connections_total"), Help: "Connections closed at once because a cap was reached."}),
		badFrames:     prometheus.NewCounter(prometheus.CounterOpts{Name: name("bad_requests_total"), Help: "Connections closed because of bytes that are no request served here."}),
		badHandshakes: prometheus.NewCounter(prometheus.CounterOpts{Name: name("tls_handshake_failures_total"), Help: "Connections that ended before their TLS handshake did."}),
		throttledVec:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: name("throttled_total"), Help: "Requests beyond the quota of their client id, by kind of request."}, []string{"request"}),
		throttleVec:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: name("throttle_seconds_total"), Help: "Time for which clients beyond their quota were not read, by kind of request."}, []string{"request"}),
		names:         map[int16]string{}, byAPI: map[int16]apiMetrics{},
	}
	for k, kind := range quotaNames {
		m.throttled[k], m.throttleSeconds[k] = m.throttledVec.WithLabelValues(kind), m.throttleVec.WithLabelValues(kind)
	}
	for _, a := range apiTable() {
		m.names[a.key] = a.name
		m.byAPI[a.key] = apiMetrics{m.requests.WithLabelValues(a.name), m.latency.WithLabelValues(a.name)}
	}
	return m
}

// watch registers the gauges that look at the server itself.
func (m *Metrics) watch(s *Server) {
	if m.reg == nil {
		return
	}
	gauge := func(name, help string, value func() float64) {
		g := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "vtop_kafka_" + name, Help: help}, value)
		if err := m.reg.Register(g); err != nil {
			s.log.Warn("cannot register a metric", "metric", name, "error", err)
		}
	}
	limit := func(name, help string, n int64) { gauge(name, help, func() float64 { return float64(n) }) }
	for _, of := range []struct {
		name, what string
		b          *budget
	}{{"request", "requests", s.requests}, {"response", "fetched records", s.responses}, {"work", "what requests with many elements come to", s.work}} {
		gauge(of.name+"_inflight_bytes", "Bytes reserved now in the budget for "+of.what+".", func() float64 { return float64(of.b.used.Load()) })
		limit(of.name+"_inflight_limit_bytes", "Size of the budget for "+of.what+"; beyond it clients wait.", of.b.size)
	}
	if t := s.cfg.TLS; t != nil {
		gauge("tls_certificate_expiry_seconds", "When the certificate of the client port ends, in Unix seconds.", func() float64 { return float64(t.NotAfter().Unix()) })
		gauge("tls_reload_failing", "1 while the certificate files on disk can't be used and those before are.", func() float64 {
			if t.ReloadErr() != nil {
				return 1
			}
			return 0
		})
	}
	limit("connections_limit", "Connections beyond this are closed at once.", int64(s.cfg.MaxConnections))
	limit("connections_per_address_limit", "The same for each address; 0 is no limit.", int64(s.cfg.MaxConnectionsPerIP))
	limit("produce_request_limit_bytes", "A Produce that is larger ends its connection.", int64(s.cfg.MaxProduceFrame))
	limit("request_limit_bytes", "Any other request that is larger ends its connection.", int64(s.cfg.MaxFrame))
	limit("produce_quota_bytes", "Bytes a second that a client id may produce here where the cluster has no quota for it; 0 is no limit.", s.cfg.ProduceQuota)
	limit("fetch_quota_bytes", "Bytes a second that a client id may fetch here where the cluster has no quota for it; 0 is no limit.", s.cfg.FetchQuota)
}

func (m *Metrics) answered(f *frame) {
	a := m.byAPI[f.api.key]
	a.requests.Inc()
	a.latency.Observe(time.Since(f.at).Seconds())
}

func (m *Metrics) failed(key, code int16) {
	m.errors.WithLabelValues(m.names[key], strconv.Itoa(int(code))).Inc()
}
