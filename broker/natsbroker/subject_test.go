package natsbroker

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

func TestTakesAll(t *testing.T) {
	with := func(subjects ...string) jetstream.StreamConfig { return jetstream.StreamConfig{Subjects: subjects} }
	sourced, mapped := with("a"), with("a")
	sourced.Sources = []*jetstream.StreamSource{{Name: "other"}}
	mapped.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "a", Destination: "b"}
	for _, tc := range []struct {
		filter string
		stream jetstream.StreamConfig
		want   bool
	}{
		{"", with("a"), true}, {"", sourced, true}, {"", mapped, true}, {"", with(), true},
		{">", with("a", "b.>"), true}, {">", sourced, true}, {"a >", mapped, true},
		{"a", with("a"), true}, {"a", with("b"), false}, {"a", with("a", "b"), false}, {"a b", with("a", "b"), true},
		{"a", sourced, false}, {"a", mapped, false}, {"a", with(), false},
		{"a.>", with("a.>"), true}, {"a.>", with("a.*", "a.b.c"), true}, {"a.>", with("a"), false}, {"a.>", with(">"), false},
		{"a.*", with("a.b"), true}, {"a.*", with("a.*"), true}, {"a.*", with("a.>"), false}, {"a.*", with("a.b.c"), false},
		{"a.*.c", with("a.b.c"), true}, {"a.*.c", with("a.*.c"), true}, {"a.b.c", with("a.*.c"), false},
		{"a.b", with("a.b.c"), false}, {"a.b.c", with("a.b"), false}, {"*.b", with("a.*"), false}, {"*", with("a"), true},
	} {
		if got := takesAll(strings.Fields(tc.filter), tc.stream); got != tc.want {
			t.Errorf("filter %q of subjects %q, sources %d: %v", tc.filter, tc.stream.Subjects, len(tc.stream.Sources), got)
		}
	}
}
