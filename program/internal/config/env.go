package config

import (
	"regexp"
	"strconv"
	"strings"
)

// reference is ${NAME}, ${NAME:-default}, or the escape $${; the last alternative catches what was meant so and is not.
var reference = regexp.MustCompile(`\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}|\$\{[^}]*\}?`)

// fill puts the environment into a text, and says whether there was anything to fill in. $${ stands for ${. As in a shell, the
// default also stands for a variable that is empty.
func (t *tree) fill(path, text string) (string, bool) {
	if !strings.Contains(text, "${") {
		return text, false
	}
	filled := false
	if t.bytes += len(text); t.bytes > maxFilled {
		return t.tooMuch(path)
	}
	text = reference.ReplaceAllStringFunc(text, func(s string) string {
		if s == "$${" {
			return "${"
		}
		m := reference.FindStringSubmatch(s)
		name, fallback := m[1], m[2]
		if name == "" {
			t.doc.add(path, "has a ${ that is neither ${NAME} nor ${NAME:-default}; write $${ for the characters themselves")
			return ""
		}
		filled, t.filled[path] = true, true
		value, ok := t.lookup(name)
		if t.bytes += len(value); t.bytes > maxFilled {
			return ""
		}
		switch {
		case fallback != "" && value == "":
			return m[3]
		case !ok:
			t.doc.addHere(path, "environment variable "+name+" is not set, and there is no default: ${"+name+":-default}")
		}
		return value
	})
	if t.bytes > maxFilled {
		return t.tooMuch(path)
	}
	return text, filled
}

func (t *tree) tooMuch(path string) (string, bool) {
	if !t.full {
		t.doc.add(path, "here too much is filled in: more than "+strconv.Itoa(maxFilled)+" bytes, all told")
	}
	t.full = true
	return "", true
}
