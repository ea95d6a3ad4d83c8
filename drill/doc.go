// Package drill breaks a live cluster on purpose, under load, and says whether its promises held.
//
// Run is one drill from the outside, as a user of the cluster sees it: a Ledger writes and remembers every acknowledged
// record, an Observer reads as they come and asks where the range begins and ends, and blows fall one after the other, each
// when the cluster is whole again after the one before. At the end everything is read back, Checks K1 to K6 are made on
// the drill's own records, and all of it is one Report, which draws itself as text, as JSON and as a page.
//
// What is asked of the cluster beside the Kafka protocol goes through Admin. The checks and the ledger's records stand by
// themselves: the tests of this repository hold their own ledgers against them.
//
// The package starts and kills no process: the nodes strike themselves, if they were started for it.
package drill
