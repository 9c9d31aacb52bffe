package kafkabroker

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("KAFKABROKER_CHILD") != "" {
		child()
		return
	}
	goleak.VerifyTestMain(m)
}
