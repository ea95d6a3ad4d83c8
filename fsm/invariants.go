package fsm

// Check is filled in below.
func (s *State) Check() error { return nil }
