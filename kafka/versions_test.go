package kafka

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/vtop-log/vtop/fsm"
)

// kafkaFloors are the first versions that Kafka 4.1 takes, where that is not 0 (KIP-896, KIP-724).
var kafkaFloors = map[int16]int16{keyProduce: 3, keyFetch: 4, keyListOffsets: 1, 8: 2, 9: 1, keyCreateTopics: 2, keyDeleteTopics: 1,
	keyOffsetForLeaderEpoch: 2, 29: 1, 30: 1, 31: 1, keyDescribeConfigs: 1, 34: 1, 35: 1}

// deviations are the keys that are not served as Kafka 4.1 does, with the reason.
var deviations = map[int16]string{}

// A set of versions that no Kafka ever had breaks clients (J2): they look at one request to know what another can do.
func TestApis_AreOneRealKafka(t *testing.T) {
	real := kversion.V4_1_0()
	for _, a := range apiTable() {
		newest, ok := real.LookupMaxKeyVersion(a.key)
		same := ok && a.max == newest && a.min == kafkaFloors[a.key]
		if why := deviations[a.key]; same == (why != "") {
			t.Errorf("%s is served in versions %d to %d, Kafka 4.1 has %d to %d; the reason given is %q", a.name, a.min, a.max, kafkaFloors[a.key], newest, why)
		}
	}
	s := newFakeCluster(t, 1, nil).nodes[0].server
	resp := kmsg.NewPtrApiVersionsResponse()
	fillApiVersions(resp, s.apis)
	for _, k := range resp.ApiKeys {
		if k.ApiKey == keyProduce && k.MinVersion != 0 {
			t.Error("Produce begins at 3: librdkafka 2.0 would send gzip batches uncompressed")
		}
	}
}

var update = flag.Bool("update", false, "write the table of docs/kafka.md anew")

// The page must say what is served.
func TestDocs_Versions(t *testing.T) {
	const page, begin, end = "../docs/kafka.md", "-update -->\n", "<!-- end -->"
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	var want strings.Builder
	want.WriteString("| key | request | versions |\n| --- | --- | --- |\n")
	for _, a := range apiTable() {
		fmt.Fprintf(&want, "| %d | %s | %d to %d |\n", a.key, a.name, a.min, a.max)
	}
	if table == want.String() {
		return
	}
	if !*update {
		t.Fatalf("%s does not say what is served: run this test with -update", page)
	}
	if err := os.WriteFile(page, []byte(before+begin+want.String()+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestApiVersions_Features(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	conn := dial(t, c.nodes[0])
	var last int64
	for version := int16(0); version <= 4; version++ {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = version, "x", "1"
		resp := conn.ask(t, req).(*kmsg.ApiVersionsResponse)
		got := map[string]string{}
		for _, f := range resp.SupportedFeatures {
			if f.MinVersion < 1 {
				t.Errorf("%s begins at %d, which Java clients before 3.9 cannot read", f.Name, f.MinVersion)
			}
			got[f.Name] = fmt.Sprintf("%d-%d", f.MinVersion, f.MaxVersion)
		}
		for _, f := range resp.FinalizedFeatures {
			got[f.Name] += fmt.Sprintf(" at %d", f.MaxVersionLevel)
		}
		want := "map[]"
		if version >= 3 {
			want = fmt.Sprintf("map[group.version:1-1 at 1 metadata.version:27-27 at 27 vtop.level:1-%d at 1]", fsm.LevelMax)
			if resp.FinalizedFeaturesEpoch < last || resp.FinalizedFeaturesEpoch < 1 {
				t.Errorf("v%d: the features are of epoch %d, after %d", version, resp.FinalizedFeaturesEpoch, last)
			}
			last = resp.FinalizedFeaturesEpoch
		}
		if fmt.Sprint(got) != want {
			t.Errorf("v%d: %v, want %s", version, got, want)
		}
	}
	level := int16(0)
	kversion.V4_1_0().EachFinalizedFeature(func(name string, at int16) {
		if name == "metadata.version" {
			level = at
		}
	})
	if level != kafkaLevel {
		t.Errorf("metadata.version of Kafka 4.1 is %d, ours %d", level, kafkaLevel)
	}
}

func TestDescribeCluster_EveryVersion(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	c.set(func(c *fakeCluster) { c.down["n2"] = true })
	conn := dial(t, c.nodes[0])
	for _, tc := range []struct {
		version  int16
		endpoint int8
		fenced   bool
		code     *kerr.Error
		brokers  string
	}{
		{0, 0, false, nil, "1 3"}, {0, 2, true, nil, "1 3"}, {1, 1, true, nil, "1 3"}, {2, 1, false, nil, "1 3"}, {2, 1, true, nil, "1 2! 3"},
		{1, 2, false, kerr.MismatchedEndpointType, ""}, {2, 0, false, kerr.UnsupportedEndpointType, ""}, {2, -1, false, kerr.UnsupportedEndpointType, ""},
	} {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version, req.EndpointType, req.IncludeFencedBrokers, req.IncludeClusterAuthorizedOperations = tc.version, tc.endpoint, tc.fenced, true
		resp := conn.ask(t, req).(*kmsg.DescribeClusterResponse)
		var brokers []string
		for _, b := range resp.Brokers {
			brokers = append(brokers, fmt.Sprint(b.NodeID)+map[bool]string{true: "!"}[b.IsFenced])
		}
		if tc.code != nil && (resp.ErrorCode != tc.code.Code || resp.ErrorMessage == nil) || tc.code == nil && resp.ErrorCode != 0 || strings.Join(brokers, " ") != tc.brokers {
			t.Errorf("v%d endpoint %d fenced %v: code %d brokers %v, want %v %q", tc.version, tc.endpoint, tc.fenced, resp.ErrorCode, brokers, tc.code, tc.brokers)
		}
		if tc.code == nil && resp.ClusterAuthorizedOperations != clusterOperations {
			t.Errorf("v%d: operations %b", tc.version, resp.ClusterAuthorizedOperations)
		}
	}
}

// pages asks for page after page and tells what each held.
func pages(t *testing.T, conn *rawConn, limit int32, topics ...string) (out []string) {
	t.Helper()
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = limit
	for _, name := range topics {
		req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
	}
	for range 100 {
		resp := conn.ask(t, req).(*kmsg.DescribeTopicPartitionsResponse)
		var page []string
		for _, rt := range resp.Topics {
			told := *rt.Topic
			for _, p := range rt.Partitions {
				told += fmt.Sprintf(" %d", p.Partition)
				if p.ErrorCode != 0 || p.LeaderID != 1 || p.LeaderEpoch < 1 || len(p.Replicas) != 2 || len(p.ISR) != 2 || p.EligibleLeaderReplicas == nil || p.LastKnownELR == nil {
					t.Errorf("%s/%d: %+v", *rt.Topic, p.Partition, p)
				}
			}
			if rt.ErrorCode != 0 {
				told += " " + kerr.ErrorForCode(rt.ErrorCode).(*kerr.Error).Message
			} else if rt.TopicID == [16]byte{} || rt.AuthorizedOperations != topicOperations {
				t.Errorf("%s: id %v, operations %b", *rt.Topic, rt.TopicID, rt.AuthorizedOperations)
			}
			page = append(page, told)
		}
		out = append(out, strings.Join(page, ", "))
		if resp.NextCursor == nil {
			return out
		}
		req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
	}
	t.Fatal("the pages have no end")
	return nil
}

func TestDescribeTopicPartitions_Pages(t *testing.T) {
	c := newFakeCluster(t, 2, nil)
	c.topic("c", 1)
	c.topic("a", 3)
	c.topic("b", 2)
	conn := dial(t, c.nodes[1])
	for _, tc := range []struct {
		limit  int32
		topics []string
		want   []string
	}{
		{2000, nil, []string{"a 0 1 2, b 0 1, c 0"}},
		{1 << 30, nil, []string{"a 0 1 2, b 0 1, c 0"}},
		{3, nil, []string{"a 0 1 2", "b 0 1, c 0"}},
		{4, nil, []string{"a 0 1 2, b 0", "b 1, c 0"}},
		{2, nil, []string{"a 0 1", "a 2, b 0", "b 1, c 0"}},
		{0, []string{"b", "b"}, []string{"b 0", "b 1"}},
		{-5, []string{"c"}, []string{"c 0"}},
		{3, []string{"none", "b", "a/b", "a"}, []string{"a 0 1 2", "a/b INVALID_TOPIC_EXCEPTION, b 0 1, none UNKNOWN_TOPIC_OR_PARTITION"}},
	} {
		if got := pages(t, conn, tc.limit, tc.topics...); !slices.Equal(got, tc.want) {
			t.Errorf("limit %d of %v:\n got %q\nwant %q", tc.limit, tc.topics, got, tc.want)
		}
	}
}

func TestDescribeTopicPartitions_OddCursors(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.MaxTimeout = 300 * time.Millisecond })
	c.topic("a", 2)
	c.topic("c", 1)
	ask := func(cursor kmsg.DescribeTopicPartitionsRequestCursor, topics ...string) *kmsg.DescribeTopicPartitionsRequest {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.Cursor = &cursor
		for _, name := range topics {
			req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
		}
		return req
	}
	cursor := func(topic string, index int32) kmsg.DescribeTopicPartitionsRequestCursor {
		return kmsg.DescribeTopicPartitionsRequestCursor{Topic: topic, Partition: index}
	}
	conn := dial(t, c.nodes[0])
	for _, req := range []*kmsg.DescribeTopicPartitionsRequest{ask(cursor("a", -1), "a"), ask(cursor("c", 0), "a")} {
		if got := conn.ask(t, req).(*kmsg.DescribeTopicPartitionsResponse); got.Topics[0].ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("cursor %+v: code %d", req.Cursor, got.Topics[0].ErrorCode)
		}
	}
	// Case: a cursor at what is gone, or beyond its end, goes on with what follows.
	for _, at := range []kmsg.DescribeTopicPartitionsRequestCursor{cursor("b", 7), cursor("a", 2), cursor("a", 1<<31-1)} {
		got := conn.ask(t, ask(at)).(*kmsg.DescribeTopicPartitionsResponse)
		if last := got.Topics[len(got.Topics)-1]; *last.Topic != "c" || len(last.Partitions) != 1 || got.NextCursor != nil {
			t.Errorf("cursor %+v: %+v", at, got)
		}
	}
	// Case: there is nothing to put a code on.
	conn.send(t, ask(cursor("a", -1)))
	conn.closed(t)
	// Case: a node that has not caught up says so, and does not say that there are no topics.
	c.set(func(c *fakeCluster) { c.notReady = true })
	unready := dial(t, c.nodes[0])
	if got := unready.ask(t, ask(cursor("a", 0), "a")).(*kmsg.DescribeTopicPartitionsResponse); got.Topics[0].ErrorCode != kerr.LeaderNotAvailable.Code {
		t.Errorf("not caught up: code %d", got.Topics[0].ErrorCode)
	}
	unready.send(t, ask(cursor("a", 0)))
	unready.closed(t)
}
