package transport

import (
	"net/http"
	"strconv"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// Headers of every call and answer. An identity that is not set has no header.
const (
	headerProtocol    = "Vtop-Protocol"
	headerCluster     = "Vtop-Cluster"
	headerGeneration  = "Vtop-Generation"
	headerFrom        = "Vtop-From"
	headerStorage     = "Vtop-Storage"
	headerIncarnation = "Vtop-Incarnation"
	headerServer      = "Vtop-Server-Id"
	headerTo          = "Vtop-To"
)

// setHeaders says who this node is, and whom it wants.
func setHeaders(h http.Header, self Self, to vtop.NodeName) {
	h.Set(headerProtocol, strconv.Itoa(protocolVersion))
	h.Set(headerFrom, string(self.Name))
	h.Set(headerGeneration, strconv.FormatUint(self.Generation, 10))
	h.Set(headerIncarnation, strconv.FormatUint(uint64(self.Incarnation), 10))
	if !self.Cluster.IsZero() {
		h.Set(headerCluster, self.Cluster.String())
	}
	if !self.Storage.IsZero() {
		h.Set(headerStorage, self.Storage.String())
	}
	if self.ServerID != "" {
		h.Set(headerServer, self.ServerID)
	}
	if to != "" {
		h.Set(headerTo, string(to))
	}
}

// helloFromHeaders reads them back as the hello they stand for.
func helloFromHeaders(h http.Header) (*peerpb.Hello, error) {
	hello := &peerpb.Hello{Name: h.Get(headerFrom), ServerId: h.Get(headerServer), To: h.Get(headerTo)}
	var protocol uint64
	for _, f := range []struct {
		name string
		bits int
		into *uint64
	}{
		{headerProtocol, 32, &protocol},
		{headerGeneration, 64, &hello.Generation},
		{headerIncarnation, 64, &hello.Incarnation},
	} {
		n, err := strconv.ParseUint(h.Get(f.name), 10, f.bits)
		if err != nil {
			return nil, refusef(ErrInvalid, "header %s is %q, want a number: is the other side a vtopd?", f.name, h.Get(f.name))
		}
		*f.into = n
	}
	hello.Protocol = uint32(protocol)
	for _, f := range []struct {
		name string
		into *[]byte
	}{
		{headerCluster, &hello.ClusterId},
		{headerStorage, &hello.StorageId},
	} {
		text := h.Get(f.name)
		if text == "" {
			continue
		}
		id, err := vtop.ParseUUID(text)
		if err != nil {
			return nil, refusef(ErrInvalid, "header %s: %v", f.name, err)
		}
		*f.into = UUIDBytes(id)
	}
	return hello, nil
}
