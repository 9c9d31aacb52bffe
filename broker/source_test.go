package broker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
)

func TestTrustHasAName(t *testing.T) {
	for trust, want := range map[broker.Trust]string{
		broker.AtLeast: "at least", broker.AtMost: "at most", broker.Exact: "exact", -1: "unknown", broker.Exact + 1: "unknown",
	} {
		if got := fmt.Sprint(trust); got != want {
			t.Errorf("trust %d is %q, want %q", int(trust), got, want)
		}
	}
	if got, want := fmt.Sprintf("%+v", broker.Traits{Attempts: broker.AtMost}), "Attempts:at most"; !strings.Contains(got, want) {
		t.Errorf("traits are %q, want %q in it", got, want)
	}
}
