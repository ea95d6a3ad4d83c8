package kafka

// adminAPIs are the requests of administrators beyond topics and their settings.
func adminAPIs() []api {
	return nil
}
