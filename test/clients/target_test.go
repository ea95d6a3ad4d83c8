//go:build cluster

package clients

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/test/harness"
)

// target is a server of the protocol that the scenarios run against. One scenario runs on it at a time, or several that disturb nothing.
type target interface {
	seeds() []string
	replicas() int
	// move makes another node the leader of range 0 of topic; notHere where it can't be.
	move(topic string) error
	// killHolder kills the leader of range 0 of topic; restore starts it again and waits until it takes part.
	killHolder(topic string) (restore func() error, err error)
	// killCoordinator does the same with the coordinator of group.
	killCoordinator(group string) (restore func() error, err error)
}

// notHere is the error of what a target can't show.
type notHere string

func (n notHere) Error() string { return string(n) }

// stopPolling is an error that no waiting mends.
type stopPolling struct{ error }

func (s stopPolling) Unwrap() error { return s.error }

// eventually polls check until it gives nil or a stopPolling, and gives its last error after limit.
func eventually(limit time.Duration, what string, check func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if errors.As(err, new(stopPolling)) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %s: %w", what, limit, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// vtop is three vtopd processes.
type vtop struct {
	c *harness.Cluster
}

func (v vtop) seeds() []string { return v.c.Bootstrap() }
func (v vtop) replicas() int   { return len(v.c.Nodes) }

func (v vtop) holder(topic string) (*harness.Node, error) {
	var holder *harness.Node
	return holder, eventually(30*time.Second, "a serving holder of "+topic+"/0", func() error {
		leases, err := v.c.Leases(topic)
		if err != nil {
			return err
		}
		for _, l := range leases {
			if l.Range == 0 && l.Holder != "" && l.State == "serving" && v.c.Node(l.Holder).Runs() {
				holder = v.c.Node(l.Holder)
				return nil
			}
		}
		return fmt.Errorf("leases are %+v", leases)
	})
}

func (v vtop) move(topic string) error {
	holder, err := v.holder(topic)
	if err != nil {
		return err
	}
	to := v.c.Nodes[(holder.Index+1)%len(v.c.Nodes)]
	return eventually(30*time.Second, "lease transfer to "+to.Name, func() error {
		if _, said, code := holder.Ctl("lease", "transfer", topic+"/0", "--to", to.Name); code != 0 {
			return fmt.Errorf("exit %d: %s", code, said)
		}
		now, err := v.holder(topic)
		if err == nil && now != to {
			err = fmt.Errorf("the holder is %s", now.Name)
		}
		return err
	})
}

func (v vtop) killHolder(topic string) (func() error, error) {
	holder, err := v.holder(topic)
	if err != nil {
		return nil, err
	}
	return v.kill(holder), nil
}

func (v vtop) kill(n *harness.Node) func() error {
	n.Kill()
	return func() error {
		n.Start()
		return eventually(60*time.Second, n.Name+" ready", func() error { return n.Get("/readyz", nil) })
	}
}

func (v vtop) killCoordinator(group string) (func() error, error) {
	id, err := coordinator(v.seeds(), group)
	if err != nil {
		return nil, err
	}
	lines, err := v.c.NodeLines()
	if err != nil {
		return nil, err
	}
	for _, l := range lines {
		if l.ID == id {
			return v.kill(v.c.Node(l.Name)), nil
		}
	}
	return nil, fmt.Errorf("node %d coordinates %s, and is none of %+v", id, group, lines)
}

// coordinator asks for the node that coordinates group.
func coordinator(seeds []string, group string) (int32, error) {
	cl, err := kgo.NewClient(harness.ClientOptions(seeds)...)
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	found := kadm.NewClient(cl).FindGroupCoordinators(ctx, group)
	if err := errors.Join(found.Error(), found[group].Err); err != nil {
		return 0, err
	}
	return found[group].NodeID, nil
}
