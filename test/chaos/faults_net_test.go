//go:build cluster

package chaos

import (
	"time"
)

func networkFaults() []fault {
	return []fault{
		{name: "cut-full", needs: needNetwork, run: cutting(holder)},
		{name: "cut-raft-leader", needs: needNetwork, run: cutting(raftLeader)},
		{name: "cut-one-way", needs: needNetwork, run: cutOneWay},
		{name: "cut-port", needs: needNetwork, run: cutPort},
	}
}

// cutting isolates a node from all others for less or more than a lease time; clients reach it all the same.
func cutting(as role) func(*blow) error {
	return func(b *blow) error {
		n, release, err := b.claim(as)
		if err != nil {
			return err
		}
		defer release()
		b.strike("%s, %s, cut off from all others", n.Name, as)
		b.w.net.Isolate(n.Index)
		b.hold(time.Second, 14*time.Second)
		b.w.net.Rejoin(n.Index)
		return b.ready(n)
	}
}

// cutOneWay makes a node mute, or deaf.
func cutOneWay(b *blow) error {
	as := role(b.rng.IntN(int(coordinator)))
	n, release, err := b.claim(as)
	if err != nil {
		return err
	}
	defer release()
	mute := b.heads()
	each := func(do func(from, to int)) {
		for i := range nodes {
			switch {
			case i == n.Index:
			case mute:
				do(n.Index, i)
			default:
				do(i, n.Index)
			}
		}
	}
	b.strike("%s, %s, is not heard by others: %v; hears nothing from them: %v", n.Name, as, mute, !mute)
	each(b.w.net.CutOneWay)
	b.hold(time.Second, 14*time.Second)
	each(b.w.net.HealOneWay)
	return b.ready(n)
}

// cutPort closes the peer port of a node to all others, or those of all others to it, while gossip and all else goes on.
func cutPort(b *blow) error {
	as := role(b.rng.IntN(int(coordinator)))
	n, release, err := b.claim(as)
	if err != nil {
		return err
	}
	defer release()
	incoming := b.heads()
	// A node that gets another address meanwhile would not be healed by its new one.
	peers := make([]string, nodes)
	for i, m := range b.w.c.Nodes {
		peers[i] = m.Peer
	}
	each := func(do func(from int, to string)) {
		for i := range nodes {
			switch {
			case i == n.Index:
			case incoming:
				do(i, peers[n.Index])
			default:
				do(n.Index, peers[i])
			}
		}
	}
	b.strike("%s, %s: its peer port closed to others: %v; theirs to it: %v", n.Name, as, incoming, !incoming)
	each(b.w.net.CutPort)
	b.hold(time.Second, 14*time.Second)
	each(b.w.net.HealPort)
	return b.ready(n)
}
