package consumer

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/absence"
)

// Of outputs that go out together each has its own outcome, whichever of their topics are known to be missing.
func TestOutcomesBesideMissingTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var known absence.Topics
		known.Learn("away", broker.ErrNoTopic)
		full := errors.New("full")
		for name, tc := range map[string]struct {
			topics  []string
			of      []error // what became of those that are asked for; nil: all are there
			outcome []error // nil: all are there
		}{
			"none is missing":          {[]string{"a", "b"}, nil, nil},
			"none is missing, one not": {[]string{"a", "b"}, []error{nil, full}, []error{nil, full}},
			"one is missing":           {[]string{"a", "away", "b"}, nil, []error{nil, broker.ErrNoTopic, nil}},
			"one is missing, one not":  {[]string{"away", "a", "b"}, []error{nil, full}, []error{broker.ErrNoTopic, nil, full}},
			"the last is missing":      {[]string{"a", "away"}, []error{full}, []error{full, broker.ErrNoTopic}},
			"all are missing":          {[]string{"away", "away"}, nil, []error{broker.ErrNoTopic, broker.ErrNoTopic}},
		} {
			var outs []broker.Outgoing
			for _, topic := range tc.topics {
				outs = append(outs, broker.Outgoing{Topic: topic})
			}
			absent, asked := toAbsent(&known, outs)
			for _, o := range asked {
				if o.Topic == "away" {
					t.Errorf("%s: asked for what is missing", name)
				}
			}
			got := fillIn(absent, tc.of)
			if !slices.EqualFunc(got, tc.outcome, func(a, b error) bool { return errors.Is(a, b) && (a == nil) == (b == nil) }) {
				t.Errorf("%s: %v, want %v", name, got, tc.outcome)
			}
		}
	})
}
