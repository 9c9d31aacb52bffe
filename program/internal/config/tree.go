package config

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/longshoremq/longshore/handlers"
	"go.yaml.in/yaml/v3"
)

// Bounds on a file, against one that grows without end through aliases.
const (
	maxDepth  = 32
	maxValues = 100_000
	maxPath   = 512      // bytes of the way to a value, which is kept for each
	maxFilled = 16 << 20 // bytes of texts with something filled in: each is a copy
)

// A tree turns YAML nodes into values, fills in the environment, and keeps where each value stands.
type tree struct {
	doc    *report
	filled map[string]bool // what came from the environment, by path
	lookup func(string) (string, bool)
	values int
	bytes  int  // of texts with something filled in
	full   bool // there are too many, which was said
}

// parse reads the one document of a file. nil: there is nothing in it that can be used.
func (t *tree) parse(content []byte) map[string]any {
	d := yaml.NewDecoder(bytes.NewReader(content))
	var root yaml.Node
	if err := d.Decode(&root); errors.Is(err, io.EOF) {
		t.doc.add("", "the file is empty")
		return nil
	} else if err != nil {
		t.syntax(content, err)
		return nil
	}
	var second yaml.Node
	if err := d.Decode(&second); err == nil {
		t.doc.addAt(second.Line, "", "there is a second document: a file has one")
	} else if !errors.Is(err, io.EOF) {
		t.syntax(content, err)
	}
	m, ok := t.value("", root.Content[0], 0).(map[string]any)
	if !ok {
		t.doc.add("", "want a mapping with consumers, admin, …")
	}
	return m
}

// value is a node as map[string]any, []any, string, bool, number, handlers.Text, or nil.
func (t *tree) value(path string, n *yaml.Node, depth int) any {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if t.values++; t.values > maxValues || depth > maxDepth {
		if t.values <= maxValues+1 {
			t.doc.Find(path, "there is too much here, or it contains itself")
			t.values = max(t.values, maxValues+1)
		}
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		t.untagged(path, n, "!!map")
		return t.mapping(path, n, depth)
	case yaml.SequenceNode:
		t.untagged(path, n, "!!seq")
		list := make([]any, len(n.Content))
		for i, e := range n.Content {
			at := path + "[" + strconv.Itoa(i) + "]"
			t.doc.lines[at] = e.Line
			list[i] = t.value(at, e, depth+1)
		}
		return list
	}
	return t.scalar(path, n)
}

func (t *tree) mapping(path string, n *yaml.Node, depth int) map[string]any {
	m, first := make(map[string]any, len(n.Content)/2), map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		problem := ""
		switch {
		case key.Kind != yaml.ScalarNode:
			problem = "a key here is not a plain name"
		case key.ShortTag() == "!!merge":
			t.doc.unread[path] = true
			problem = "has a merge key (<<), which is not read; an alias (*name) stands for a whole value"
		}
		if problem != "" {
			t.doc.addAt(key.Line, path, problem)
			continue
		}
		at := key.Value
		if path != "" {
			at = path + "." + key.Value
		}
		if len(at) > maxPath {
			t.doc.addAt(key.Line, path, "a key here, with those above it, has "+
				strconv.Itoa(len(at))+" bytes, more than "+strconv.Itoa(maxPath))
			continue
		}
		if line, ok := first[key.Value]; ok {
			t.doc.addAt(key.Line, at, "is here twice; the first is in line "+strconv.Itoa(line))
			continue
		}
		first[key.Value], t.doc.lines[at] = key.Line, key.Line
		m[key.Value] = t.value(at, n.Content[i+1], depth+1)
	}
	return m
}

func (t *tree) scalar(path string, n *yaml.Node) any {
	text, filled := t.fill(path, n.Value)
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	if filled && quoted {
		t.doc.inQuotes[path] = true
	}
	switch tag := n.ShortTag(); {
	case filled && !quoted:
		return handlers.Text(text) // its type is for the field to say
	case tag == "!!str" || tag == "!!timestamp":
		return text
	case tag == "!!int" && leadingZero(n.Value):
		t.doc.add(path, "is "+n.Value+": one YAML has that as octal, another as decimal; leave out the leading 0, or put a text in "+
			"quotes")
		return nil
	case strings.HasPrefix(tag, "!!"):
		var v any
		if err := n.Decode(&v); err != nil {
			t.doc.add(path, "cannot be read as "+strings.TrimPrefix(tag, "!!"))
			return nil
		}
		return v
	}
	t.doc.add(path, ownTag)
	return nil
}

// leadingZero says whether a whole number begins with a 0 that is neither all of it nor that of 0x, 0o or 0b.
func leadingZero(number string) bool {
	digits := strings.TrimLeft(number, "+-")
	return len(digits) > 1 && digits[0] == '0' && strings.IndexByte("0123456789_", digits[1]) >= 0
}

const ownTag = "has a tag of its own; tags are not used here"

// untagged finds a mapping or a list with a tag other than its own.
func (t *tree) untagged(path string, n *yaml.Node, own string) {
	if n.ShortTag() != own {
		t.doc.add(path, ownTag)
	}
}
