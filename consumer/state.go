package consumer

// A State of a Consumer. See the package comment.
type State int32

const (
	// Created: Run was not called yet.
	Created State = iota
	Opening
	Running
	Stopping
	Draining
	Cancelling
	Closing
	Stopped
)

var stateNames = [...]string{"created", "opening", "running", "stopping", "draining", "cancelling", "closing", "stopped"}

// String returns the state's name in lower case, as it appears in logs.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return "unknown"
	}
	return stateNames[s]
}
