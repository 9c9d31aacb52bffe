package middleware_test

import (
	"testing"

	"github.com/longshoremq/longshore/consumer"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// message is one at an offset.
func message(offset int64) *consumer.Message {
	return &consumer.Message{Topic: "orders", Partition: 1, Offset: offset, Value: []byte("payload"), Key: []byte("key"), Attempt: 1}
}
