package consumer

import (
	"time"

	"github.com/longshoremq/longshore/broker"
)

const (
	// retryTopicFrom is the share of window or budget in use from which a message that fails is sent to a retry topic, however short
	// its delay is, and one that is refused again and again to the broker, where that keeps the delay.
	retryTopicFrom = 0.5
	// retryShare is the part of the budget that the source of the retry topics has: one in so many.
	retryShare = 8
	// laterBy and latest bound how much later than its time a message of a retry topic may come: a laterBy-th of the step's delay,
	// and latest. What is due within that time is taken together, with one fetch.
	laterBy = 20
	latest  = time.Second
)

// step is where a message goes that has to wait for delay, if anywhere: to the first topic whose messages wait at least as long.
// pressure is how much of the room here is in use, 0..1.
func (t *RetryTopics) step(delay time.Duration, pressure float64) (RetryStep, bool) {
	if t == nil || delay < t.Steps[0].Delay && pressure < retryTopicFrom {
		return RetryStep{}, false
	}
	for _, s := range t.Steps {
		if s.Delay >= delay {
			return s, true
		}
	}
	return RetryStep{}, false
}

// mainBudget is what each source has of the budget, but for that of the retry topics.
func (c Config) mainBudget() broker.Budget {
	b, r := c.Budget, c.retryBudget()
	n := len(c.inputs())
	return broker.Budget{Messages: (b.Messages - r.Messages) / n, Bytes: (b.Bytes - r.Bytes) / int64(n)}
}

func (c Config) retryBudget() broker.Budget {
	if c.Retry.Topics == nil {
		return broker.Budget{}
	}
	return broker.Budget{Messages: max(1, c.Budget.Messages/retryShare), Bytes: max(1, c.Budget.Bytes/retryShare)}
}
