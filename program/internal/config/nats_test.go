package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const leastNATS = `
consumers:
  orders:
    source: {nats: {url: "nats://127.0.0.1:4222", stream: S, durable: d}}
    routes: [{handler: log}]`

// TestDurableStart: where a durable starts, by deliver, a sequence or a time; and bind.
func TestDurableStart(t *testing.T) {
	for with, want := range map[string]jetstream.DeliverPolicy{
		"deliver: new":                     jetstream.DeliverNewPolicy,
		"start_sequence: 3730":             jetstream.DeliverByStartSequencePolicy,
		"start_time: 2026-11-21T15:04:05Z": jetstream.DeliverByStartTimePolicy,
		"bind: true":                       jetstream.DeliverAllPolicy,
	} {
		d := parse(strings.Replace(leastNATS, "durable:", with+", durable:", 1), nil)
		wantFindings(t, d)
		c := d.File.Consumers["orders"].Source.NATS.Adapter("")
		if c.Deliver != want || c.Bind != (with == "bind: true") ||
			want == jetstream.DeliverByStartSequencePolicy && c.StartSequence != 3730 ||
			want == jetstream.DeliverByStartTimePolicy && !c.StartTime.Equal(time.Date(2026, 11, 21, 15, 4, 5, 0, time.UTC)) {
			t.Errorf("%s: %+v", with, c)
		}
	}
}

// TestDurableStartOnce: it is said in one way.
func TestDurableStartOnce(t *testing.T) {
	for with, want := range map[string]string{
		"deliver: new, start_sequence: 3":                     "is set, and so is deliver",
		"deliver: all, start_time: 2026-11-21T15:04:05Z":      "is set, and so is deliver",
		"start_sequence: 3, start_time: 2026-11-21T15:04:05Z": "is set, and so is start_sequence",
		"start_sequence: 0":                                   "is 0, want at least 1",
		"bind: true, recreate: true":                          "is set, and so is",
	} {
		err := parse(strings.Replace(leastNATS, "durable:", with+", durable:", 1), nil).Err()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", with, err, want)
		}
	}
}
