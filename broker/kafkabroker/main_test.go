package kafkabroker

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if topic := os.Getenv("KAFKABROKER_CHILD"); topic != "" {
		if os.Getenv("KAFKABROKER_MEMORY") != "" {
			memoryChild(topic)
			return
		}
		child()
		return
	}
	goleak.VerifyTestMain(m)
}
