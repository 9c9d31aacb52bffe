package handlers

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// minSecret is the shortest secret that is looked for. What is shorter is a setting, DEBUG=1, and a part of many words.
	minSecret = 4
	// minLine is the shortest line of a secret that is looked for by itself.
	minLine = 8
)

// hide returns what puts *** for secrets into a text of others, in the forms in which they may come back: whole, without blanks
// at the ends, and line by line, as shells print them, and each of these as others write it (see spellings). cut says that the
// text is the end of a longer one, so that it may begin in the middle of a secret. The secrets are in a func, where no formatting
// verb finds them.
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
		forms = append(forms, spellings(f)...)
	}
	// The longest first: of "tok" and "token-7f" the second would leave its end.
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	forms = slices.Compact(forms)
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

// spellings are how programs write s where they do not write it as it is: between quotes, as Go, Python and JSON have it (with
// HTML and slashes escaped or not, in ASCII or not), and in a URL.
func spellings(s string) []string {
	quoted := inside(strconv.Quote(s))
	python := strings.ReplaceAll(quoted, `\"`, `"`)
	var plain bytes.Buffer
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always can be
	html, _ := json.Marshal(s)
	all := []string{quoted, python, strings.ReplaceAll(python, "'", `\'`)}
	for _, form := range []string{inside(strings.TrimSpace(plain.String())), inside(string(html))} {
		all = append(all, form, ascii(form), strings.ReplaceAll(ascii(form), "/", `\/`))
	}
	component := strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
	for _, form := range []string{url.QueryEscape(s), url.PathEscape(s), component, strings.ReplaceAll(component, "%2F", "/"),
		javaScript.Replace(component)} {
		all = append(all, form, percent.ReplaceAllStringFunc(form, strings.ToLower))
	}
	return all
}

var (
	percent = regexp.MustCompile("%[0-9A-F]{2}")
	// javaScript is what encodeURIComponent leaves as it is, and Go does not.
	javaScript = strings.NewReplacer("%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*")
)

// inside is what stands between the quotes.
func inside(quoted string) string { return quoted[1 : len(quoted)-1] }

// ascii is a string's JSON with all that is not ASCII as \u, as Python's json.dumps has it.
func ascii(form string) string {
	var b strings.Builder
	for _, r := range form {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
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
