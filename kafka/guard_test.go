package kafka

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// sampleRequests are one filled request of each API and version served.
func sampleRequests() (out []kmsg.Request) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, a := range apiTable() {
		for version := a.min; version <= a.max; version++ {
			out = append(out, randomRequest(rng, &a, version))
		}
	}
	return out
}

func randomRequest(rng *rand.Rand, a *api, version int16) kmsg.Request {
	req := kmsg.RequestForKey(a.key)
	randomize(rng, reflect.ValueOf(req).Elem(), 0)
	req.SetVersion(version)
	return req
}

// randomize fills every exported field of a request.
func randomize(rng *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type().Field(i).Name != "UnknownTags" {
				randomize(rng, v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		n := rng.IntN(4)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			randomize(rng, v.Index(i), depth+1)
		}
	case reflect.Array:
		for i := range v.Len() {
			randomize(rng, v.Index(i), depth+1)
		}
	case reflect.Pointer:
		if rng.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			randomize(rng, v.Elem(), depth+1)
		}
	case reflect.String:
		v.SetString(fmt.Sprint(rng.IntN(1000)))
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(rng.IntN(100)))
	case reflect.Uint8:
		v.SetUint(uint64(rng.IntN(256)))
	}
}

func TestGuard_TakesWhatKmsgEncodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, a := range apiTable() {
		for version := a.min; version <= a.max; version++ {
			for range 50 {
				req := randomRequest(rng, &a, version)
				body := req.AppendTo(nil)
				g := guard{src: body, flexible: req.IsFlexible(), version: version, most: a.most()}
				if err := g.fields(a.shape); err != nil {
					t.Fatalf("%s v%d: %v of %d bytes", a.name, version, err, len(body))
				}
				if len(g.src) != 0 {
					t.Fatalf("%s v%d: %d of %d bytes are left: the shape lacks a field", a.name, version, len(g.src), len(body))
				}
				for cut := range body { // nothing that is cut short passes
					if _, err := a.check(version, req.IsFlexible(), body[:cut]); err == nil {
						t.Fatalf("%s v%d: %d of %d bytes pass", a.name, version, cut, len(body))
					}
				}
			}
		}
	}
}

func TestGuard_RefusesMoreElementsThanItsLimit(t *testing.T) {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version = 1
	req.TopicNames = make([]string, maxElements+1)
	a := rowOf(keyDeleteTopics)
	if _, err := a.check(1, false, req.AppendTo(nil)); !errors.Is(err, errTooMany) || !errors.Is(err, errMalformed) {
		t.Fatalf("got %v", err)
	}
	req.TopicNames = req.TopicNames[1:]
	if n, err := a.check(1, false, req.AppendTo(nil)); err != nil || n != maxElements {
		t.Fatal(n, err)
	}
}

// rowOf is the row of a key.
func rowOf(key int16) *api {
	for _, a := range apiTable() {
		if a.key == key {
			return &a
		}
	}
	return nil
}

// FuzzGuard: what the guard takes, kmsg takes, and finds no more elements than there are bytes. Only where there are tags
// kmsg may still refuse the content of one that it knows, which the guard skips; that closes the connection as well.
func FuzzGuard(f *testing.F) {
	for _, req := range sampleRequests() {
		f.Add(req.Key(), req.GetVersion(), req.AppendTo(nil))
	}
	// A Fetch whose one tag, the cluster id, is empty.
	f.Add(int16(1), int16(12), []byte("0000000000000000000000000\x01\x01\x01\x01\x00\x00"))
	// A cursor that is neither null nor marked as Kafka does: kmsg reads one.
	f.Add(int16(keyDescribeTopicPartitions), int16(0), []byte{1, 0, 0, 0, 1, 0xfe, 2, 't', 0, 0, 0, 1, 0, 0})
	table := apiTable()
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		for i := range table {
			a := &table[i]
			if a.key != key || version < a.min || version > a.max {
				continue
			}
			req := a.newRequest(version)
			g := guard{src: body, flexible: req.IsFlexible(), version: version, most: a.most()}
			if g.fields(a.shape) == nil {
				if err := req.ReadFrom(body); err != nil && g.tags == 0 {
					t.Fatalf("%s v%d: the guard takes what kmsg refuses: %v", a.name, version, err)
				}
			}
		}
	})
}
