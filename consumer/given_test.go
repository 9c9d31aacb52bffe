package consumer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// What New of an adapter returns beside its error is named, and not met at the first use.
func TestConfigNamesWhatIsNil(t *testing.T) {
	source := membroker.New(membroker.Config{}).Source(membroker.SourceConfig{Topics: []string{"in"}})
	var none *membroker.Publisher
	_, err := consumer.New(consumer.Config{
		Source: (*membroker.Source)(nil), Handler: handleAll, Output: none, Observers: []consumer.Observer{nil},
		DeadLetter: &consumer.DeadLetter{Publisher: none, Topic: "dead", Create: true},
	})
	wantFindings(t, err,
		"Source is a nil *membroker.Source: see the error that it came with",
		"Output is a nil *membroker.Publisher: see the error that it came with",
		"DeadLetter.Publisher is a nil *membroker.Publisher: see the error that it came with",
		"Observers[0] is nil",
	)
	_, err = consumer.New(consumer.Config{
		Sources: []consumer.Input{{Source: source}, {Source: source}}, Handler: handleAll,
		Retry: consumer.Retry{Topics: &consumer.RetryTopics{Source: source, Publisher: none, Steps: []consumer.RetryStep{
			{Topic: "later", Delay: time.Minute},
		}}},
	})
	wantFindings(t, err,
		"Sources[1].Source is given twice: a source is opened once",
		"Retry.Topics.Source is given twice: a source is opened once",
		"Retry.Topics.Publisher is a nil *membroker.Publisher: see the error that it came with",
	)
}

// A number without a unit is one of nanoseconds: a timeout of 30 would make a dead letter of each message.
func TestConfigNamesNanoseconds(t *testing.T) {
	_, err := consumer.New(consumer.Config{
		Source:  membroker.New(membroker.Config{}).Source(membroker.SourceConfig{Topics: []string{"in"}}),
		Handler: handleAll,
		Timeout: 30, StuckAfter: 10, DrainTimeout: 20, CancelGrace: 1, CloseTimeout: 5, OpenTimeout: 10,
		Retry: consumer.Retry{GiveUpAfter: 60, Backoff: consumer.Backoff{Initial: 1, Max: 60}},
	})
	wantFindings(t, err,
		"Timeout is 30ns, want 0 or at least 1ms", "StuckAfter is 10ns, want at least 1ms",
		"DrainTimeout is 20ns, want at least 1ms, or a negative one for none",
		"CancelGrace is 1ns, want at least 1ms", "CloseTimeout is 5ns, want at least 1ms",
		"OpenTimeout is 10ns, want 0 or at least 1ms",
		"Retry.GiveUpAfter is 60ns, want at least 1ms",
		"Retry.Backoff.Initial is 1ns, want at least 1ms", "Retry.Backoff.Max is 60ns, want at least 1ms",
	)
}

// TestStuckNeedsATimeout: who says when a handler is stuck and gives it no timeout would wait for that in vain. The defaults are
// said by nobody.
func TestStuckNeedsATimeout(t *testing.T) {
	c := consumer.Config{
		Source:  membroker.New(membroker.Config{}).Source(membroker.SourceConfig{Topics: []string{"in"}}),
		Handler: handleAll,
	}
	if err := c.WithDefaults().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	c.StuckAfter, c.MaxStuck = time.Minute, 3
	wantFindings(t, c.Validate(), "StuckAfter is set and Timeout is not: a handler without a timeout is never stuck",
		"MaxStuck is set and Timeout is not: a handler without a timeout is never stuck")
	c.Timeout = time.Second
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func wantFindings(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), "consumer config: "+w) {
			t.Errorf("%q is not in:\n%v", w, err)
		}
	}
}

// TestConfigNamesBadName: a name with a line break, as where it was read from a file, begins the IDs of all dead letters and
// outputs, and JetStream's headers can carry none of these.
func TestConfigNamesBadName(t *testing.T) {
	for _, name := range []string{"orders\n", "or\r\nders", " orders", "orders\t", "ord\x00ers", "ord\xffers", " "} {
		source := membroker.New(membroker.Config{}).Source(membroker.SourceConfig{Topics: []string{"in"}})
		_, err := consumer.New(consumer.Config{Name: name, Source: source, Handler: handleAll})
		wantFindings(t, err, fmt.Sprintf("Name is %q", name))
	}
	for _, name := range []string{"", "orders", "orders of Zoë", "prod/orders.1"} {
		source := membroker.New(membroker.Config{}).Source(membroker.SourceConfig{Topics: []string{"in"}})
		if _, err := consumer.New(consumer.Config{Name: name, Source: source, Handler: handleAll}); err != nil {
			t.Error(err)
		}
	}
}
