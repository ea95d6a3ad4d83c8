package kafka

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupHand is a client that speaks the classic protocol request by request; member ids are told by the names of their owners.
type groupHand struct {
	s   *side
	cl  *kgo.Client
	ids map[string]string // from name to member id
}

// begin sends a Join; end tells of its answer, once joined again if that is asked for.
func (h *groupHand) begin(name string, edit func(*kmsg.JoinGroupRequest)) <-chan *kmsg.JoinGroupResponse {
	req := joinRequest(0, "g", h.ids[name], edit)
	out := make(chan *kmsg.JoinGroupResponse, 1)
	cl := h.s.client() // of its own: a Join that waits holds up what comes behind it
	go func() {
		resp, err := req.RequestWith(h.s.ctx, cl)
		if err == nil && resp.ErrorCode == kerr.MemberIDRequired.Code {
			req.MemberID = resp.MemberID
			resp, err = req.RequestWith(h.s.ctx, cl)
		}
		if err != nil {
			h.s.t.Errorf("join: %v", err)
			resp = kmsg.NewPtrJoinGroupResponse()
		}
		out <- resp
	}()
	return out
}

func (h *groupHand) end(name string, answer <-chan *kmsg.JoinGroupResponse) *kmsg.JoinGroupResponse {
	j := <-answer
	if j.ErrorCode == 0 {
		h.ids[name] = j.MemberID
	}
	protocol := ""
	if j.Protocol != nil {
		protocol = *j.Protocol
	}
	leads := j.LeaderID == j.MemberID && j.ErrorCode == 0
	h.s.tell("%s joins: %s, generation %d, protocol %q, leads %v, %d members, skips %v", name, word(kerr.ErrorForCode(j.ErrorCode)), j.Generation, protocol,
		leads, len(j.Members), j.SkipAssignment)
	return j
}

func (h *groupHand) join(name string, edit func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupResponse {
	return h.end(name, h.begin(name, edit))
}

func (h *groupHand) sync(name string, generation int32, give ...string) {
	req := syncRequest("g", h.ids[name], generation, nil)
	for _, to := range give {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = h.ids[to], []byte("of "+to)
		req.GroupAssignment = append(req.GroupAssignment, a)
	}
	resp, err := req.RequestWith(h.s.ctx, h.cl)
	if err != nil {
		h.s.t.Fatal(name, " syncs: ", err, h.s.told)
	}
	h.s.tell("%s syncs: %s %q", name, word(kerr.ErrorForCode(resp.ErrorCode)), resp.MemberAssignment)
}

func (h *groupHand) beat(name string, generation int32) int16 {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = "g", h.ids[name], generation
	resp, err := req.RequestWith(h.s.ctx, h.cl)
	if err != nil {
		h.s.t.Fatal(err, h.s.told)
	}
	return resp.ErrorCode
}

func (h *groupHand) tellBeat(name string, generation int32) {
	h.s.tell("%s in %d beats: %s", name, generation, word(kerr.ErrorForCode(h.beat(name, generation))))
}

// untilAsked waits until a member is asked to join again.
func (h *groupHand) untilAsked(name string, generation int32) {
	for h.beat(name, generation) != kerr.RebalanceInProgress.Code {
	}
}

func (h *groupHand) commit(name string, generation int32, offset int64) {
	req := commitRequest("g", h.ids[name], generation, "t", offset)
	resp, err := req.RequestWith(h.s.ctx, h.cl)
	if err != nil {
		h.s.t.Fatal(err, h.s.told)
	}
	h.s.tell("%s in %d commits: %s", name, generation, word(kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)))
}

func (h *groupHand) leave(name string) {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = "g", h.ids[name]
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID = h.ids[name]
	req.Members = append(req.Members, m)
	resp, err := req.RequestWith(h.s.ctx, h.cl)
	if err != nil {
		h.s.t.Fatal(err, h.s.told)
	}
	code := resp.ErrorCode
	if len(resp.Members) > 0 {
		code = resp.Members[0].ErrorCode
	}
	h.s.tell("%s leaves: %s", name, word(kerr.ErrorForCode(code)))
}

func (s *side) groupHand() *groupHand {
	cl := s.client()
	if _, err := kadm.NewClient(cl).CreateTopic(s.ctx, 2, 1, nil, "t"); err != nil {
		s.t.Fatal(err)
	}
	return &groupHand{s, cl, map[string]string{"nobody": "nobody"}}
}

// groupScenarios are of the classic protocol.
var groupScenarios = []scenario{
	{"two members by hand", func(s *side) {
		h := s.groupHand()
		h.join("a", func(r *kmsg.JoinGroupRequest) { r.Group = "" })
		h.join("a", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1 })
		h.join("a", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" })
		h.join("nobody", nil)
		g := h.join("a", nil).Generation
		h.commit("a", g, 1)
		h.tellBeat("a", g)
		h.sync("nobody", g)
		h.sync("a", g+1)
		h.sync("a", g, "a", "nobody")
		h.sync("a", g)
		h.tellBeat("a", g)
		h.tellBeat("a", g+1)
		h.tellBeat("nobody", g)
		h.commit("a", g, 5)
		h.commit("a", g-1, 5)
		h.commit("nobody", g, 5)
		h.ids["empty"] = ""
		h.commit("empty", -1, 5)
		h.join("c", func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = "other" })

		second := h.begin("b", nil)
		h.untilAsked("a", g)
		h.commit("a", g, 6)
		h.sync("a", g)
		first := h.join("a", nil)
		h.end("b", second)
		g = first.Generation
		h.sync("a", g, "a", "b")
		h.sync("b", g)
		h.join("b", nil) // asks again for no reason: told the same
		h.leave("nobody")
		h.leave("b")
		h.untilAsked("a", g)
		g = h.join("a", nil).Generation
		h.sync("a", g, "a")
		h.leave("a")
		h.leave("a")
		h.tellBeat("a", g)
		h.commit("empty", -1, 7)
	}},
	{"a static member by hand", func(s *side) {
		h := s.groupHand()
		static := func(r *kmsg.JoinGroupRequest) { r.InstanceID = kmsg.StringPtr("i") }
		if v, _ := s.newest.LookupMaxKeyVersion(keyJoinGroup); v < 9 {
			s.t.Skip("kfake has such a client assign again, Kafka and vtop name it another leader (KIP-814)")
		}
		g := h.join("a", static).Generation
		h.sync("a", g, "a")
		h.ids["b"] = ""
		g = h.join("b", static).Generation
		h.sync("b", g)
		h.tellBeat("a", g)
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group, req.MemberID, req.Generation, req.InstanceID = "g", h.ids["a"], g, kmsg.StringPtr("i")
		resp, err := req.RequestWith(s.ctx, h.cl)
		if err != nil {
			s.t.Fatal(err)
		}
		s.tell("the old one as instance: %s", word(kerr.ErrorForCode(resp.ErrorCode)))
		h.tellBeat("b", g)
	}},
	{"offsets and operators", func(s *side) {
		cl := s.client()
		adm := kadm.NewClient(cl)
		if _, err := adm.CreateTopic(s.ctx, 2, 1, nil, "t"); err != nil {
			s.t.Fatal(err)
		}
		var offsets kadm.Offsets
		offsets.Add(kadm.Offset{Topic: "t", Partition: 0, At: 4, LeaderEpoch: -1, Metadata: "m"})
		offsets.Add(kadm.Offset{Topic: "none", Partition: 0, At: 4, LeaderEpoch: -1})
		committed, err := adm.CommitOffsets(s.ctx, "simple", offsets)
		for _, r := range committed.Sorted() {
			s.tell("commit %s/%d: %s %s", r.Topic, r.Partition, word(r.Err), word(err))
		}
		show := func(id string, topics ...string) {
			got, err := adm.FetchOffsetsForTopics(s.ctx, id, topics...)
			for _, o := range got.Sorted() {
				s.tell("%s has %s/%d at %d %q epoch %d %s", id, o.Topic, o.Partition, o.At, o.Metadata, o.LeaderEpoch, word(o.Err))
			}
			s.tell("%s: %s", id, word(err))
		}
		show("simple", "t")
		// A group that is not there has no offsets, and no error, as in Kafka; kfake says GROUP_ID_NOT_FOUND.
		all, err := adm.FetchOffsets(s.ctx, "simple")
		s.tell("all of simple: %d topics %s", len(all), word(err))

		l := newGroupLedger(s.t)
		produceNumbered(s.t, s.seeds, "t", 0, 10)
		stop := l.member(s.seeds, "real", "t")
		defer stop()
		l.await(10)
		listed, err := adm.ListGroups(s.ctx)
		for _, g := range listed.Sorted() {
			s.tell("listed %s %s %s", g.Group, g.ProtocolType, word(err))
		}
		described, _ := adm.DescribeGroups(s.ctx, "real", "simple", "none")
		for _, g := range described.Sorted() {
			s.tell("%s is %s, type %q, protocol %q, %d members, %s", g.Group, g.State, g.ProtocolType, g.Protocol, len(g.Members), word(g.Err))
		}
		if r := described["real"]; len(r.Members) == 1 {
			a, ok := r.Members[0].Assigned.AsConsumer()
			s.tell("its member has %v %v", ok, a.Topics)
		}
		set := kadm.TopicsSet{}
		set.Add("t", 0)
		for _, id := range []string{"real", "simple", "none"} {
			if !s.newest.HasKey(keyOffsetDelete) {
				break
			}
			r, err := adm.DeleteOffsets(s.ctx, id, set)
			s.tell("delete offsets of %s: %s %s", id, word(r["t"][0]), word(err))
		}
		for _, id := range []string{"real", "simple", "none"} {
			r, err := adm.DeleteGroup(s.ctx, id)
			s.tell("delete %s: %s", id, word(errors.Join(err, r.Err)))
		}
		stop()
		deadline := time.Now().Add(hangs)
		for time.Now().Before(deadline) {
			if _, err := adm.DeleteGroup(s.ctx, "real"); !errors.Is(err, kerr.NonEmptyGroup) {
				s.tell("delete real at the end: %s", word(err))
				return
			}
		}
	}},
}

func TestOracle_ClassicGroups(t *testing.T) { runScenarios(t, groupScenarios) }
