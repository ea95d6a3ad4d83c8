// Package harness runs real vtopd processes on real directories and looks at them from outside: through the
// Kafka port with real clients, through the admin port, and at the bytes on their disks. The checks K1 to K5
// that every drill ends with are here (see docs/faults.md):
//
//	K1 every acknowledged record is readable at its acknowledged offset
//	K2 one (range, offset) has one value, for all readers and all replicas
//	K3 end offset, floor and log start seen by a client never go back
//	K4 an idempotent producer's record appears once
//	K5 below the committed floor all replicas are byte-equal, segment by segment
package harness
