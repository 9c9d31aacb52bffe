package config_test

import (
	"strings"
	"testing"
)

// TestSyntax: what is no YAML is reported in its own line, with a remedy, and without the text of the line.
func TestSyntax(t *testing.T) {
	head := "admin: {token: 0123456789abcdef}\n# a comment\n" + least // 6 lines
	for _, c := range []struct{ tail, want string }{
		{"    timeout: 5s\n   max_stuck: 4\nlog: {}\n",
			"8: not YAML: did not find expected key. Is it indented as the lines above are?"},
		{"    pool: {min: 1,\n      max: ${MAX}}\n    timeout: 5s\n", "7: not YAML: did not find expected"},
		{"    dead_letter: {to: ${DEAD}}\n    timeout: 5s\n", "7: not YAML: did not find expected ',' or '}'. Put \"${…}\" in quotes"},
		{"\tpool: {min: 1}\n    timeout: 5s\n",
			"7: not YAML: found character that cannot start any token. The line is indented with a tab"},
		{"    pool:\n\t\tmin: 1\n", "8: not YAML: found character that cannot start any token. The line is indented with a tab"},
		{"    dead_letter: {to: @dead}\n", "7: not YAML: found character that cannot start any token. A value that begins with @"},
		{"    dead_letter:\n      to: a: b\n    timeout: 5s\n",
			"8: not YAML: mapping values are not allowed in this context. Is it indented as the lines above are? A value with"},
		{"    dead_letter: {to: \"dead}\n    timeout: 5s\nlog: {level: info}\n", "7: not YAML: found unexpected end of stream"},
		{"    middleware:\n      - use: dedup\n     - use: recover\n", "9: not YAML: did not find expected"},
		{"    timeout: 5s\n\n# more\n   max_stuck: 4\n", "10: not YAML: did not find expected key. Is it"},
		{"    routes: *none\n", "7: not YAML: unknown anchor referenced. A value that begins with * or & must be in quotes"},
		{strings.Repeat("    # a long comment\n", 5000) + "   max_stuck: 4\n", ""},
	} {
		got := findings(parse(head+c.tail, nil))
		if c.want == "" { // too long to search
			if len(got) != 1 || !strings.HasSuffix(got[0], ", here or below") {
				t.Errorf("a long file: %q", got)
			}
			continue
		}
		if len(got) != 1 || !strings.HasPrefix(got[0], "c.yaml:"+c.want) {
			t.Errorf("%s\n%q, want %q", c.tail, got, c.want)
		}
	}
}
