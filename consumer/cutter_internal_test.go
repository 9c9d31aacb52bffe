package consumer

import (
	"testing"

	"github.com/longshoremq/longshore/broker"
)

// What came as a whole batch is queued as it lies, but for a message that has its last run: that one gathers, to be a batch of
// its own, and so does what came behind it.
func TestWholeBatchesHaveNoLastRuns(t *testing.T) {
	b := &batches{cfg: &Batch{Size: 2, Bytes: defaultBatchBytes}, retry: Retry{MaxAttempts: 3}, letters: true}
	for name, tc := range map[string]struct {
		again broker.Message
		trust broker.Trust
		want  int
	}{
		"the first time":                  {broker.Message{Attempt: 1}, broker.Exact, 6},
		"not the last yet":                {broker.Message{Attempt: 2, Runs: 1}, broker.Exact, 6},
		"by what is known of it":          {broker.Message{Attempt: 1, Runs: 2}, broker.Exact, 4},
		"by the broker's count":           {broker.Message{Attempt: 3}, broker.Exact, 4},
		"by no count that may be of more": {broker.Message{Attempt: 3}, broker.AtMost, 6},
	} {
		k := claimsFor(1)[0]
		k.feed = &feed{traits: broker.Traits{Attempts: tc.trust}}
		ms := make([]broker.Message, 7)
		ms[4] = tc.again
		full, rest := new(cutter).whole(k, ms, b)
		if len(full) != tc.want/2 || len(rest) != len(ms)-tc.want {
			t.Errorf("%s: %d whole batches, and %d messages gather", name, len(full), len(rest))
		}
	}
}
