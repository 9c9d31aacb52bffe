package natssubject_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/internal/natssubject"
	"pgregory.net/rapid"
)

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, subject string
		want             bool
	}{
		{"a.b", "a.b", true}, {"a.b", "a.c", false}, {"a.*", "a.b", true}, {"a.*", "a.b.c", false},
		{"a.>", "a.b.c", true}, {"a.>", "a", false}, {">", "a", true}, {"*", ">", false},
		{"a.*", "a.>", false}, {"a.>", "a.*", true}, {"a", "a.b", false}, {"a.b", "a", false},
		{"a.*", "a", false}, {"a.*", "a.b.c", false}, {"*.b.c", "a.b", false}, {"a.*.c", "a.b.c", true},
	} {
		if got := natssubject.Matches(c.pattern, c.subject); got != c.want {
			t.Errorf("%s takes %s: %v", c.pattern, c.subject, got)
		}
	}
}

func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		one, other string
		want       bool
	}{
		{"a.b", "a.b", true}, {"a.b", "a.c", false}, {"a", "a.b", false}, {"a.*", "*.b", true}, {"a.*", "*.b.c", false}, {"a.>", "a",
			false},
		{"a.>", "*.b", true}, {"a.>", "b.>", false}, {">", "a", true}, {"a.>", "a.*.c", true}, {"*", ">", true}, {"*.b.>", "a.>", true},
		{"*.b.>", "a.b", false}, {"orders.>", "order.>", false}, {"orders.>", "*.>", true},
	} {
		if got := natssubject.Overlap(c.one, c.other); got != c.want {
			t.Errorf("%s and %s: %v", c.one, c.other, got)
		}
		if got := natssubject.Overlap(c.other, c.one); got != c.want {
			t.Errorf("%s and %s: %v", c.other, c.one, got)
		}
	}
}

// expression is a pattern as a regular expression.
func expression(pattern string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.NewReplacer(".", `\.`, "*", "[^.]+", ">", ".+").Replace(pattern) + "$")
}

// subjects are all of up to five tokens, each of them a or b.
var subjects = func() (all []string) {
	last := []string{""}
	for range 5 {
		var next []string
		for _, s := range last {
			for _, token := range []string{"a", "b"} {
				next = append(next, strings.TrimPrefix(s+"."+token, "."))
			}
		}
		all, last = append(all, next...), next
	}
	return all
}()

// TestPatternsByBruteForce: what Overlap and Matches say of two patterns of up to four tokens is so for all subjects.
func TestPatternsByBruteForce(t *testing.T) {
	pattern := rapid.Custom(func(t *rapid.T) string {
		tokens := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*"}), 1, 4).Draw(t, "tokens")
		if rapid.Bool().Draw(t, "rest") {
			tokens[len(tokens)-1] = ">"
		}
		return strings.Join(tokens, ".")
	})
	rapid.Check(t, func(t *rapid.T) {
		one, other := pattern.Draw(t, "one"), pattern.Draw(t, "other")
		p, q := expression(one), expression(other)
		both, all := false, true
		for _, s := range subjects {
			both = both || p.MatchString(s) && q.MatchString(s)
			all = all && (p.MatchString(s) || !q.MatchString(s))
		}
		if got := natssubject.Overlap(one, other); got != both {
			t.Fatalf("%s and %s overlap: %v", one, other, got)
		}
		if got := natssubject.Matches(one, other); got != all {
			t.Fatalf("%s takes all of %s: %v", one, other, got)
		}
	})
}
