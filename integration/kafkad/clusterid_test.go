//go:build unix

package kafkad

import (
	"strings"
	"testing"
)

// One of 64 began with a dash, and Kafka's storage tool took it for an option.
func TestClusterIDIsNoOption(t *testing.T) {
	for range 2000 {
		if id := clusterID(); strings.HasPrefix(id, "-") || len(id) != 22 {
			t.Fatalf("cluster id %q", id)
		}
	}
}
