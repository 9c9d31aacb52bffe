package handlers

import (
	"slices"
	"strconv"
	"strings"
)

const (
	// minSecret is the shortest secret that is looked for. What is shorter is a setting, DEBUG=1, and a part of many words.
	minSecret = 4
	// minLine is the shortest line of a secret that is looked for by itself.
	minLine = 8
)

// hide returns what puts *** for secrets into a text of others, in the forms in which they may come back: whole, without blanks
// at the ends, and line by line, as shells print them, and each of these as it stands between quotes. cut says that the text is
// the end of a longer one, so that it may begin in the middle of a secret. The secrets are in a func, where no formatting verb
// finds them.
func hide(secrets []string) func(text string, cut bool) string {
	var forms []string
	for _, s := range secrets {
		forms = append(forms, s, strings.TrimSpace(s))
		if strings.Contains(strings.TrimSpace(s), "\n") {
			for line := range strings.Lines(s) {
				if line = strings.TrimSpace(line); len(line) >= minLine {
					forms = append(forms, line)
				}
			}
		}
	}
	forms = slices.DeleteFunc(forms, func(f string) bool { return len(strings.TrimSpace(f)) < minSecret })
	for _, f := range slices.Clone(forms) {
		if quoted := strconv.Quote(f); len(quoted) > len(f)+2 {
			forms = append(forms, quoted[1:len(quoted)-1])
		}
	}
	// The longest first: of "tok" and "token-7f" the second would leave its end.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, f := range forms {
		pairs = append(pairs, f, "***")
	}
	replace := strings.NewReplacer(pairs...).Replace
	return func(text string, cut bool) string {
		if n := severed(text, forms); cut && n > 0 {
			text = "***" + text[n:]
		}
		return replace(text)
	}
}

// severed is how much of the beginning of a text is the end of a secret.
func severed(text string, secrets []string) (most int) {
	for _, s := range secrets {
		for n := min(len(s)-1, len(text)); n > most; n-- {
			if text[:n] == s[len(s)-n:] {
				most = n
			}
		}
	}
	return most
}
