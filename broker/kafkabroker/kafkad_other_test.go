//go:build !unix

package kafkabroker

import (
	"os"
	"strings"
	"testing"
)

// sharedKafka can only be named: no Kafka is started on this system.
func sharedKafka(t testing.TB) (brokers []string) {
	t.Helper()
	env := os.Getenv("KAFKA_BROKERS")
	if env == "" {
		t.Fatal("NO REAL KAFKA: set KAFKA_BROKERS")
	}
	return strings.Split(env, ",")
}

func stopSharedKafka() {}
