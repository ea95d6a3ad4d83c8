// Package kafka implements the face that Kafka clients see: the wire protocol over a Node.
//
// Server owns listeners and connections. Each connection (conn.go) has two goroutines. The reader takes frames
// off the socket, admits Produce requests to the node in their order, and puts every request into a bounded
// queue (queue.go); the writer takes requests off that queue in order, a Produce when it is acknowledged, runs
// any other request, and writes the answer. So answers leave in the order of the requests, produces are
// pipelined, and what a client has not read yet costs at most one answer in memory.
//
// Each request has a file named by its API key and name, with its contract on top. apis.go is the table of them
// with the versions served. errors.go is the one table that turns vtop's errors into Kafka's codes. guard.go
// walks a request before it is decoded, so that a lying count allocates nothing. Everything is decoded and
// encoded by kmsg, save the Fetch answer, which is laid out by hand around raw batches (fetch_encode.go). The versions
// served are those of one Kafka release as a set; topics are found by name or by id (topics.go).
//
// The package keeps no state that outlives a connection, save what client ids owe of their quotas, and decides nothing
// about leases, replicas or groups: it asks its Node. It knows no transactions, and keeps no fetch sessions.
package kafka
