package protocol

import "github.com/vtop-log/vtop"

// Follow decides whether a replica may accept records of an epoch, and acknowledge under it: the epoch is the
// applied lease's, it has started, the log was reconciled with a table that holds it, and no higher one was promised
// (I6). A learner follows by the same rule. A nil error means yes; the error is a *Refusal.
//
// It is asked again for each append and for each acknowledgement that leaves the node: an fsync that returns after
// the lease has moved acknowledges nothing under the old epoch's name unless this still says yes.
func Follow(epoch vtop.Epoch, replica vtop.ReplicaID, view View, local Local) error {
	refuse := func(c Code, e vtop.Epoch, detail string) error {
		return &Refusal{Code: c, Asked: epoch, Epoch: e, Detail: detail}
	}
	switch {
	case local.Replica != replica || replica == 0:
		return refuse(WrongReplica, view.Lease.Epoch, "")
	case local.Lost != "":
		return refuse(ReplicaLost, view.Lease.Epoch, local.Lost)
	case !view.CaughtUp:
		return refuse(NotCaughtUp, view.Lease.Epoch, "")
	case local.Promise.Epoch > epoch:
		return refuse(Promised, local.Promise.Epoch, "")
	case view.Lease.Epoch > epoch:
		return refuse(Superseded, view.Lease.Epoch, "")
	case view.Lease.Epoch < epoch:
		return refuse(Behind, view.Lease.Epoch, "")
	case !view.Started:
		return refuse(NotStarted, view.Lease.Epoch, "")
	case local.Reconciled != view.Compared():
		return refuse(NotReconciled, local.Reconciled.Epoch, "")
	}
	return nil
}

// Serve decides whether the holder of a lease may begin to lead: what binds a follower binds a leader too, its own
// promise above all (I6). In an unbroken history a holder cannot have promised a higher epoch; when metadata went
// back to an older grant it can, and the epoch that it promised may have started elsewhere. lease is the one that
// this process asked its voters for. A nil error means yes; the error is a *Refusal.
func Serve(lease vtop.Lease, replica vtop.ReplicaID, view View, local Local) error {
	if view.Lease.Epoch == lease.Epoch && view.Lease != lease {
		return &Refusal{Code: NotGranted, Asked: lease.Epoch, Epoch: view.Lease.Epoch, Detail: "the lease names another process"}
	}
	return Follow(lease.Epoch, replica, view, local)
}
