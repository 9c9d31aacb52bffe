package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxSearch bounds what the search for a mistake may parse all told, in bytes.
const maxSearch = 32 << 20

var syntaxLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax reports what the parser says. The line in its text is where the thing begins that it could not read, often far above the
// mistake, so the line is searched for.
func (t *tree) syntax(content []byte, err error) {
	text := wordless(err.Error())
	m := syntaxLine.FindStringSubmatch(text)
	if m == nil {
		t.doc.add("", text)
		return
	}
	problem := "not YAML: " + text[len(m[0]):]
	lines := bytes.SplitAfter(content, []byte("\n"))
	if len(content)*len(lines)/2 > maxSearch {
		line, _ := strconv.Atoi(m[1])
		t.doc.addAt(line, "", problem+", here or below")
		return
	}
	line := unreadable(lines)
	t.doc.addAt(line, "", problem+hint(string(lines[line-1]), text))
}

// anchor is what YAML's parser repeats of the file: the name of an anchor, which a value that is not in quotes may look like, and
// be a secret.
var anchor = regexp.MustCompile(`anchor '.*'`)

// wordless is what the parser says without that.
func wordless(text string) string {
	if !anchor.MatchString(text) {
		return text
	}
	return anchor.ReplaceAllString(text, "anchor") + ". A value that begins with * or & must be in quotes"
}

// unreadable is the number of the line after the longest beginning that can be read. An open bracket or quote makes beginnings
// unreadable until it is closed, so the longest one is wanted, and what is never closed is found where it opens.
func unreadable(lines [][]byte) int {
	readable, end := 0, 0
	whole := bytes.Join(lines, nil)
	for i, l := range lines {
		end += len(l)
		if i < len(lines)-1 && parses(whole[:end]) {
			readable = i + 1
		}
	}
	for readable < len(lines)-1 && blank(lines[readable]) { // these are readable, after something that is not
		readable++
	}
	return readable + 1
}

func blank(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) == 0 || line[0] == '#'
}

func parses(content []byte) bool {
	d := yaml.NewDecoder(bytes.NewReader(content))
	for {
		var n yaml.Node
		if err := d.Decode(&n); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

var (
	quoted      = regexp.MustCompile(`"(\\.|[^"\\])*"|'[^']*'`)
	tabIndent   = regexp.MustCompile(`^[ -]*\t`)
	needsQuotes = regexp.MustCompile("(: |- |[{\\[,] *)[@`%]")
)

// hint says what is probably wrong with a line, without showing it.
func hint(line, problem string) string {
	bare := quoted.ReplaceAllString(line, "")
	switch {
	case tabIndent.MatchString(line):
		return ". The line is indented with a tab; YAML wants blanks"
	case strings.Contains(bare, "${"):
		return `. Put "${…}" in quotes or on its own line: { begins a mapping in YAML`
	case needsQuotes.MatchString(bare):
		return ". A value that begins with @, ` or % must be in quotes"
	case strings.Contains(problem, "mapping values are not allowed"):
		return `. Is it indented as the lines above are? A value with ": " in it must be in quotes`
	case strings.Contains(problem, "did not find expected key"), strings.Contains(problem, "did not find expected '-' indicator"):
		return ". Is it indented as the lines above are?"
	}
	return ""
}
