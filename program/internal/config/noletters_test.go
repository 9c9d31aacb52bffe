package config_test

import (
	"strings"
	"testing"
)

// TestTooLargeHasAPlaceToGo: what is refused for its size goes to the dead letters, or would come again for ever, never handled.
func TestTooLargeHasAPlaceToGo(t *testing.T) {
	for _, key := range []string{"max_message_bytes", "max_header_bytes"} {
		wantFindings(t, parse(least+"    "+key+": 1000\n", nil),
			"5: consumers.orders."+key+": is set, and there is no dead_letter: what is larger has no place to go")
		wantFindings(t, parse(least+"    "+key+": 0\n", nil))
		wantFindings(t, parse(least+"    dead_letter: {to: dead}\n    "+key+": 1000\n", nil))
	}
}

// TestWithoutDeadLetters: what sounds as if messages were given up is warned of where none is.
func TestWithoutDeadLetters(t *testing.T) {
	const routes = `    source: {nats: {url: "nats://127.0.0.1:4222", stream: S, durable: d, subjects: [a.>]}}` + "\n    routes: "
	for _, c := range []struct{ consumer, path, problem string }{
		{routes + "[{handler: log}]\n    retry: {max_attempts: 3}\n", "retry.max_attempts", "retried for ever"},
		{routes + "[{handler: log}]\n    retry: {give_up_after: 1h}\n", "retry.give_up_after", "retried for ever"},
		{routes + "[{handler: log}]\n    retry: {max_attempts: 3}\n    dead_letter: {to: dead}\n", "", ""},
		{routes + "[{handler: log}]\n    retry: {backoff: {max: 1s}}\n", "", ""},

		{routes + "[{match: a.b, handler: log}]\n", "no_route", "no route takes"},
		{routes + "[{match: a.>, type: t, handler: log}]\n", "no_route", "no route takes"},
		{routes + "[{headers: {h: v}, handler: log}]\n", "no_route", "no route takes"},
		{routes + "[{match: a.b, handler: log}]\n    no_route: dead_letter\n", "no_route", "no route takes"},
		{routes + "[{match: a.b, handler: log}]\n    no_route: skip\n", "", ""},
		{routes + "[{match: a.b, handler: log}]\n    no_route: stop\n", "", ""},
		{routes + "[{match: a.b, handler: log}]\n    dead_letter: {to: dead}\n", "", ""},
		{routes + "[{match: a.b, handler: log}, {handler: log}]\n", "", ""},
		{routes + "[{match: a.>, handler: log}]\n", "", ""},
		{routes + "[{match: '>', handler: log}]\n", "", ""},
		// nobody knows what a whole stream has
		{strings.Replace(routes, ", subjects: [a.>]", "", 1) + "[{match: a.b, handler: log}]\n", "", ""},
		{strings.Replace(routes, ", subjects: [a.>]", "", 1) + "[{match: a.b, type: t, handler: log}]\n", "no_route", "no route takes"},
	} {
		d := parse("consumers:\n  o:\n"+c.consumer, nil)
		wantFindings(t, d)
		switch {
		case c.path == "" && len(d.Warnings) > 0:
			t.Errorf("%s: %+v", c.consumer, d.Warnings)
		case c.path != "" && (len(d.Warnings) != 1 || d.Warnings[0].Path != "consumers.o."+c.path ||
			!strings.Contains(d.Warnings[0].Problem, c.problem)):
			t.Errorf("%s: %+v, want one of %s", c.consumer, d.Warnings, c.path)
		}
	}
}
