package config_test

import (
	"strings"
	"testing"
	"time"
)

// TestDrainTimeout: drain_timeout, cancel grace and closing together are within kill_grace; without drain_timeout it is what the
// others leave.
func TestDrainTimeout(t *testing.T) {
	for _, c := range []struct {
		consumer, file string
		grace, want    time.Duration
		found          string
	}{
		{"", "", time.Second, 24 * time.Second, ""},
		{"", "", 6 * time.Second, 19 * time.Second, ""},
		{"", "kill_grace: 2m", time.Second, 114 * time.Second, ""},
		{"drain_timeout: 24s", "", time.Second, 24 * time.Second, ""},
		{"drain_timeout: 0s", "", time.Second, 0, ""},
		{"drain_timeout: 25s", "", time.Second, 25 * time.Second,
			"5: consumers.orders.drain_timeout: is 25s, so that a stop takes up to 31s: 1s more for handlers whose context has ended " +
				"and 5s for closing. kill_grace is 30s: the process would be killed. At most 24s"},
		{"drain_timeout: 24s", "", 6 * time.Second, 24 * time.Second,
			"5: consumers.orders.drain_timeout: is 24s, so that a stop takes up to 35s"},
		{"drain_timeout: 25s", "kill_grace: 31s", time.Second, 25 * time.Second, ""},
		{"drain_timeout: 0s", "kill_grace: 6s", time.Second, 0, ""},
		{"", "kill_grace: 5s", time.Second, 0,
			"6: kill_grace: is 5s, and a stop of consumers.orders takes 6s even with drain_timeout 0s: 1s for handlers whose context " +
				"has ended and 5s for closing"},
	} {
		d := parse(least+"    "+c.consumer+"\n"+c.file+"\n", nil)
		wantFindings(t, d)
		if got := d.DrainTimeout("consumers.orders", d.File.Consumers["orders"], c.grace); got != c.want {
			t.Errorf("%s %s, grace %v: %v, want %v", c.consumer, c.file, c.grace, got, c.want)
		}
		got := strings.Join(findings(d), "\n")
		if got != c.found && (c.found == "" || !strings.HasPrefix(got, "c.yaml:"+c.found)) {
			t.Errorf("%s %s, grace %v: found %q, want %q", c.consumer, c.file, c.grace, got, c.found)
		}
	}
}
