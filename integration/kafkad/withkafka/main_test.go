//go:build unix

package main

import (
	"context"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun: a Kafka that is named is used, and the command's exit code is ours. (What it starts otherwise is kafkad's, which has its tests.)
func TestRun(t *testing.T) {
	t.Setenv("KAFKA_BROKERS", "a:1,b:2")
	for name, c := range map[string]struct {
		command []string
		want    int
		err     bool
	}{
		"passes":          {[]string{"sh", "-c", `test "$KAFKA_BROKERS" = a:1,b:2`}, 0, false},
		"its exit code":   {[]string{"sh", "-c", "exit 7"}, 7, false},
		"ends by signal":  {[]string{"sh", "-c", "kill -9 $$"}, 1, true},
		"no such command": {[]string{"no-such-command-of-longshore"}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			code, err := run(context.Background(), c.command[0], c.command[1:])
			if code != c.want || (err != nil) != c.err {
				t.Errorf("got %d, %v; want %d, an error: %v", code, err, c.want, c.err)
			}
		})
	}
}
