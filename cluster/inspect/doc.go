// Package inspect answers operators: it puts together what the applied state says, what this node knows, and what it
// learns from the others, and shows each with its source in mind. What could not be learned is unknown, never zero
// and never "ok" (I12).
//
// Face implements the admin port's Handler. It is there before the node is, since a node whose disk can't be written
// must be able to say so.
package inspect
