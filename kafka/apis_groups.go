package kafka

// groupAPIs are the requests of consumer groups, classic protocol, and of their offsets.
func groupAPIs() []api {
	return nil
}
