package brokertest_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/longshoremq/longshore/broker/brokertest_test.leftBehind"))
}
