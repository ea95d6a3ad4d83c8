// Package topicconfig implements the configuration of topics: the keys that vtop knows, under Kafka's names,
// with their defaults, limits and documentation.
//
// The state machine keeps, for each topic, only what was set on purpose, as strings (DESCRIBE shows the rest
// as defaults). Validate is the gate where those strings come in; Parse turns them into a Config for the
// storage and the leader, and never fails on what Validate let through.
package topicconfig
