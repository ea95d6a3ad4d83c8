package kafka

// consumerAPIs are the requests of consumer groups, new protocol (KIP-848).
func consumerAPIs() []api {
	return nil
}
