package fsm

import (
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// AlterTopicConfig sets and deletes keys of a topic's configuration. What keys and values mean is the proposer's
// business: the state machine only bounds them.
//
//	op            8, since level 1
//	proposed by   any node, through the Raft leader
//	precondition  Expected is 0 or the topic's configuration version
//	effect        keys of Delete go, then those of Set are set; the version rises by one if anything changed
//	refused       CodeUnknownRange; CodeStaleConfig; CodeLimit
//	a repeat      changes nothing and succeeds with Expected 0, else is refused with CodeStaleConfig
type AlterTopicConfig struct {
	Topic vtop.TopicID
	// Expected is the version on which a change that depends on the old value is based; 0 asks for none.
	Expected uint64
	Set      map[string]string
	Delete   []string
}

// Op implements Command.
func (c *AlterTopicConfig) Op() Op { return OpAlterTopicConfig }

// Check implements Command.
func (c *AlterTopicConfig) Check() error {
	var s shape
	s.uuid("topic id", c.Topic)
	s.config(c.Set)
	s.atMost("keys to delete", len(c.Delete), MaxConfigKeys)
	for _, k := range c.Delete {
		s.name("configuration key", k)
	}
	return s.err()
}

func (c *AlterTopicConfig) encode() proto.Message {
	return &fsmpb.AlterTopicConfig{Topic: putUUID(c.Topic), Expected: c.Expected, Set: putConfig(c.Set), Delete: c.Delete}
}

func decodeAlterTopicConfig(r *reader, p *fsmpb.AlterTopicConfig) *AlterTopicConfig {
	return &AlterTopicConfig{Topic: r.uuid(p.GetTopic()), Expected: p.GetExpected(), Set: r.config(p.GetSet()), Delete: p.GetDelete()}
}

func (c *AlterTopicConfig) apply(t *tx) Outcome {
	old, refusal := t.topic(c.Topic)
	if refusal != nil {
		return Outcome{Refusal: refusal}
	}
	if c.Expected != 0 && c.Expected != old.ConfigVersion {
		return Outcome{Refusal: refusef(CodeStaleConfig, "configuration of topic %q is at version %d, expected %d", old.Name, old.ConfigVersion, c.Expected)}
	}
	config := make(map[string]string, len(old.Config)+len(c.Set))
	maps.Copy(config, old.Config)
	for _, k := range c.Delete {
		delete(config, k)
	}
	maps.Copy(config, c.Set)
	if len(config) > MaxConfigKeys {
		return Outcome{Refusal: refusef(CodeLimit, "topic %q would have %d configuration keys, at most %d", old.Name, len(config), MaxConfigKeys)}
	}
	if maps.Equal(config, old.Config) {
		return Outcome{ConfigVersion: old.ConfigVersion}
	}
	topic := *old
	topic.Config = config
	topic.ConfigVersion++
	t.putTopic(&topic)
	return Outcome{ConfigVersion: topic.ConfigVersion}
}
