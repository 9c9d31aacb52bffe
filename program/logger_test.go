package program

import (
	"regexp"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/program/internal/config"
)

// TestConsoleBeginsWithTheEvent: what happened stands before its figures, and once.
func TestConsoleBeginsWithTheEvent(t *testing.T) {
	var out strings.Builder
	log := newLogger(config.Log{Format: "console"}, &out)
	log.Info().Str("consumer", "orders").Str("event", "state").Str("state", "running").Send()
	log.Warn().Str("event", "forced_stop").Int("in_flight", 3).Msg("stopped at once")
	const at = `\d\d:\d\d:\d\d\.\d{3} `
	want := regexp.MustCompile(`^` + at + `INF state consumer=orders state=running\n` + at +
		`WRN forced_stop stopped at once in_flight=3\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("%q", out.String())
	}
}
