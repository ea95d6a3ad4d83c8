//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/test/harness"
)

// J3: a node hangs and then dies while a topic of which it has a replica is deleted and made again under its name, with a
// replica there, too. When the node is back, nothing of the old topic is served, not even when it leads the new one; the old directory goes by
// the tombstone. A second topic, deleted for good, leaves nothing there either.
func TestTopic_MadeAgainWhileANodeIsDown(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: append([]string{"--auto-create-topics=false", "--node-timeout", "20s"}, steady...)})
	createTopic(t, c, "ledger", 1, 3)
	createTopic(t, c, "gone", 1, 3)
	old := writeIDs(t, c, "ledger", 1, 300)
	writeIDs(t, c, "gone", 1, 10)
	c.WaitCaughtUp("ledger", 30*time.Second)
	c.WaitCaughtUp("gone", 30*time.Second)
	_, before := c.Holder("ledger", 0)
	oldID, err := c.TopicID("ledger")
	if err != nil {
		t.Fatal(err)
	}
	late := follower(t, c, "ledger")
	late.Pause() // and not killed yet: the new topic has to have a replica there
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	adm := admin(t, c)
	if _, err := adm.DeleteTopics(ctx, "ledger", "gone"); err != nil {
		t.Fatal(err)
	}
	createAgain(ctx, t, adm, "ledger", 1)
	late.Kill()
	const first = 10_000 // far from what the old one had
	acks := writeIDs(t, c, "ledger", first, 100)
	_, lease := c.Holder("ledger", 0)
	if lease.Epoch <= before.Epoch {
		t.Errorf("the topic made again has epoch %d, the deleted one had %d", lease.Epoch, before.Epoch)
	}
	if n := dirsOf(t, late, oldID); n != 1 {
		t.Fatalf("the node that is down has %d directories of the deleted topic: nothing to test", n)
	}
	late.Start()
	late.WaitReady()
	c.WaitInSync("ledger", 60*time.Second)
	c.LeadAt("ledger", 0, late)
	acks = append(acks, writeIDs(t, c, "ledger", first+1000, 50)...)
	for _, r := range c.VerifyLedger("ledger", acks) {
		if r.ID < first {
			t.Fatalf("record %d of the deleted topic is at offset %d of the new one, of %d old ones", r.ID, r.Offset, len(old))
		}
	}
	c.Eventually(30*time.Second, "no directory but those of the new topic", func() error {
		for _, n := range c.Nodes {
			if all, old := dirsOf(t, n, ""), dirsOf(t, n, oldID); all != 1 || old != 0 {
				return fmt.Errorf("%s has %d range directories, %d of them of the deleted topic", n.Name, all, old)
			}
		}
		return nil
	})
}

// writeIDs writes so many records to range 0, one after the other.
func writeIDs(t *testing.T, c *harness.Cluster, topic string, first uint64, n int) (acks []harness.Ack) {
	t.Helper()
	cl, err := kgo.NewClient(append(harness.ClientOptions(c.Bootstrap()), kgo.DefaultProduceTopic(topic), kgo.UnknownTopicRetries(-1))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Value: harness.Payload(first+uint64(i), 64)})
	}
	for i, r := range cl.ProduceSync(ctx, records...) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		acks = append(acks, harness.Ack{ID: first + uint64(i), Range: r.Record.Partition, Offset: r.Record.Offset})
	}
	return acks
}

// dirsOf counts the range directories of a node whose name has the topic's id, those set aside too; all in use if it is empty.
func dirsOf(t *testing.T, n *harness.Node, topicID string) (count int) {
	t.Helper()
	place := "ranges"
	if topicID != "" {
		place = "*"
	}
	dirs, err := filepath.Glob(filepath.Join(n.Dir, "store", place, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if strings.HasPrefix(filepath.Base(d), topicID) {
			count++
		}
	}
	return count
}
