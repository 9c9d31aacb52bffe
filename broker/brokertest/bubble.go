package brokertest

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// stillAfter is how long of real time a case in a bubble may take before the suite says that it hangs. It takes less than a
// second.
const stillAfter = 20 * time.Second

// inBubble runs f inside testing/synctest. left says what was left behind that can never go on; synctest itself panics then and
// names neither the case nor the reason.
func (c *testCase) inBubble(t *testing.T, f func(t *testing.T)) (left string) {
	t.Helper()
	still := time.AfterFunc(stillAfter, func() { fmt.Fprintln(os.Stderr, c.standsStill()) })
	defer still.Stop()
	defer func() {
		if p := recover(); p != nil {
			left = fmt.Sprintf("case %s: goroutines of the source are left behind that wait for ever, after Close or because nothing "+
				"wakes them: %v", c.name, p)
		}
	}()
	synctest.Test(t, f)
	return ""
}

func (c *testCase) standsStill() string {
	return fmt.Sprintf("brokertest: case %s has not ended after %v of real time. Inside a bubble the clock stands still while a "+
		"goroutine spins "+
		"or waits for a mutex, so no deadline ends it: does the adapter call Observe with a lock held? Harness.Bubble = false shows "+
		"what the case says.",
		c.name, stillAfter)
}
