// Package clients runs real Kafka clients, each with its own library and runtime, against real vtopd processes, and
// writes the table client × feature × result to docs/clients.md (make clients). The same scenarios run against other
// servers of the protocol, so that a difference is seen and explained.
//
// A client is a small program under programs/ that a driver, the tests of this package, starts with the bootstrap
// servers as its argument. They speak a line protocol, one JSON object a line. The program first says
//
//	{"id":0,"hello":{"client":"…","version":"…"}}
//
// The driver sends commands on standard input; id is its number, and several may run at once:
//
//	{"id":1,"op":"create_topic","topic":"t","ranges":3,"replicas":3}
//	{"id":2,"op":"produce","topic":"t","first":0,"count":100,"codec":"gzip","idempotent":true,"per_second":200}
//	{"id":3,"op":"consume","topic":"t","count":100}
//	{"id":4,"op":"group","topic":"t","group":"g","protocol":"classic","instance":""}
//	{"id":5,"op":"stop","of":4}
//
// produce writes values first, first+1, … with acks=all to a topic of one range; without count, until stop. codec is
// empty, gzip, snappy, lz4 or zstd. consume reads all ranges from the start, without a group. group runs a member until
// stop, reads from the start where nothing is committed, and commits what it has read. stop asks for an orderly end:
// flush, commit, leave. The end of standard input stops everything.
//
// The program answers with events:
//
//	{"id":3,"records":[[range,offset,"value"],…]}   what the application got
//	{"id":3,"warn":"…"}                             what the library tells for information
//	{"id":2,"done":true,"acked":100}                the end of a command; with "error", what reached the application,
//	                                                or with "unsupported", what the library doesn't have
//
// A program leaves its library at its defaults, save for what a test must have (session timeouts of six seconds) and what
// the library's manual tells everybody to set; each such setting stands in its source with the reason.
package clients
