package kit_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

func TestOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o kit.Operations
		sent, failed := time.Now(), errors.New("no answer")
		o.Tell(broker.Fetch, sent, nil) // nobody is told
		if at := o.Begin(); !at.IsZero() {
			t.Errorf("Begin is %v, and nobody observes", at)
		}
		var told []broker.Operation
		o.Observe(func(op broker.Operation) { told = append(told, op) })
		time.Sleep(3 * time.Millisecond)
		o.Tell(broker.Fetch, sent, nil)
		o.Tell(broker.Settle, sent, failed)
		want := []broker.Operation{{Kind: broker.Fetch, Took: 3 * time.Millisecond},
			{Kind: broker.Settle, Took: 3 * time.Millisecond, Err: failed}}
		if !o.Begin().Equal(sent.Add(3*time.Millisecond)) || !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

func TestOperationsThatNobodyMeasures(t *testing.T) {
	var o kit.Operations
	if n := testing.AllocsPerRun(1000, func() { o.Tell(broker.Settle, o.Begin(), nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
