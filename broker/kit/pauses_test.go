package kit_test

import (
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker/kit"
)

func TestPauses(t *testing.T) {
	for _, tc := range []struct {
		steps string // p and r, each with its topics
		want  string // what of a, b and c is paused
		all   bool
	}{
		{"", "", false},
		{"p:a", "a", false},
		{"p:a,b r:a", "b", false},
		{"p:", "abc", true},
		{"p: r:", "", false},
		{"p:a r:", "", false},
		{"p:a p: r:", "", false},
		{"p: r:a", "abc", true},
		{"r: r:a", "", false},
	} {
		t.Run(tc.steps, func(t *testing.T) {
			var p kit.Pauses
			for _, step := range strings.Fields(tc.steps) {
				what, names, _ := strings.Cut(step, ":")
				topics := strings.FieldsFunc(names, func(r rune) bool { return r == ',' })
				if what == "p" {
					p.Pause(topics...)
				} else {
					p.Resume(topics...)
				}
			}
			got := ""
			for _, topic := range []string{"a", "b", "c"} {
				if p.Has(topic) {
					got += topic
				}
			}
			if got != tc.want || p.All() != tc.all {
				t.Errorf("%q are paused, all is %v; want %q and %v", got, p.All(), tc.want, tc.all)
			}
		})
	}
}
