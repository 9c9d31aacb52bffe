package config

import (
	"bytes"
	"encoding"
	"fmt"
	"io"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/handlers"
	"go.yaml.in/yaml/v3"
)

// hidden stands for what is not shown.
const hidden = "***"

// Show writes f as YAML: d's File with its defaults. What is a secret, or may be one, is hidden: logins in URLs, and of the
// options under with all but those that are known to be none.
func (d *Document) Show(w io.Writer, f *File) error {
	s := shower{d}
	root := s.fields("", reflect.ValueOf(f).Elem())
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// A shower makes YAML of a File.
type shower struct{ doc *Document }

// fields are a struct's as a mapping: those that are inline come last, and what is said twice has the outer value.
func (s shower) fields(path string, v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	var inline []reflect.Value
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch key, how, _ := strings.Cut(f.Tag.Get("yaml"), ","); {
		case how == "inline":
			inline = append(inline, v.Field(i))
		case key != "" && key != "-":
			s.add(n, below(path, key), key, v.Field(i))
		case f.Type == reflect.TypeFor[*Other]() && !v.Field(i).IsNil():
			o := v.Field(i).Interface().(*Other)
			n.Content = append(n.Content, text(o.Adapter), s.options(below(path, o.Adapter), map[string]any(o.With)))
		}
	}
	for _, in := range inline {
		more := s.fields(path, in)
		for i := 0; i+1 < len(more.Content); i += 2 {
			if !hasKey(n, more.Content[i].Value) {
				n.Content = append(n.Content, more.Content[i], more.Content[i+1])
			}
		}
	}
	return n
}

func hasKey(mapping *yaml.Node, key string) bool {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return true
		}
	}
	return false
}

func below(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// add adds a field, unless it says nothing: neither the file has it, nor is there a default but off, or none.
func (s shower) add(n *yaml.Node, path, key string, v reflect.Value) {
	if v.IsZero() && !s.doc.Has(path) {
		return
	}
	if value := s.value(path, key, v); value != nil {
		n.Content = append(n.Content, text(key), value)
	}
}

// value is a field's; nil: there is none.
func (s shower) value(path, key string, v reflect.Value) *yaml.Node {
	switch x := v.Interface().(type) {
	case With:
		return s.options(path, map[string]any(x))
	case time.Duration:
		return plain(shortDuration(x))
	case encoding.TextMarshaler:
		t, err := x.MarshalText()
		if err != nil || len(t) == 0 {
			return nil
		}
		return text(string(t))
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return s.value(path, key, v.Elem())
	case reflect.Struct:
		return s.fields(path, v)
	case reflect.Map:
		return s.mapping(path, key, v)
	case reflect.Slice:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			list.Content = append(list.Content, s.value(path+"["+strconv.Itoa(i)+"]", key, v.Index(i)))
		}
		return list
	case reflect.String:
		return text(shownText(key, v.String()))
	}
	return plain(fmt.Sprint(v.Interface()))
}

func (s shower) mapping(path, key string, v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	names := v.MapKeys()
	slices.SortFunc(names, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, name := range names {
		if value := s.value(below(path, name.String()), key, v.MapIndex(name)); value != nil {
			n.Content = append(n.Content, text(name.String()), value)
		}
	}
	return n
}

// openOptions are those under with whose values are shown: no handler has a secret under such a name. Of a URL its host is, and
// of a command its program.
var openOptions = []string{"after", "allow_insecure_auth", "bearer_token_file", "burst", "ca_file", "content_type", "dir",
	"drop_headers", "encoding", "failure_rate", "forward_headers", "inherit_env", "kill_after", "level", "limit", "max_bytes",
	"max_idle_connections", "max_retry_after", "min_calls", "open_for", "payload", "per_second", "permanent_codes", "probes",
	"retry_when_open", "size", "timeout", "to", "window"}

// options are those of a handler, a middleware or an adapter, which may hold secrets.
func (s shower) options(path string, with map[string]any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range slices.Sorted(maps.Keys(with)) {
		value := text(hidden)
		switch x, at := with[name], below(path, name); {
		case s.doc.secrets.decoded[at]:
		case slices.Contains(openOptions, name):
			value = open(x)
		case name == "url":
			value = text(origin(fmt.Sprint(x)))
		case name == "command":
			if list, ok := x.([]any); ok && len(list) > 0 {
				value = &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{text(fmt.Sprint(list[0]))}}
				if len(list) > 1 {
					value.Content = append(value.Content, text(hidden))
				}
			}
		}
		n.Content = append(n.Content, text(name), value)
	}
	return n
}

// open is a value that is no secret; what is deeper than a list of values is hidden.
func open(x any) *yaml.Node {
	switch x := x.(type) {
	case []any:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, one := range x {
			list.Content = append(list.Content, open(one))
		}
		return list
	case map[string]any:
		return text(hidden)
	case string:
		return text(x)
	case handlers.Text:
		return plain(string(x))
	}
	return plain(fmt.Sprint(x))
}

// shownText is a text of the file without what may be a secret in it.
func shownText(key, s string) string {
	switch key {
	case "url", "urls", "endpoint":
		return origin(s)
	}
	return s
}

// origin is a URL without login, path and query.
func origin(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return hidden
	}
	shown := u.Scheme + "://"
	if u.User != nil {
		shown += hidden + "@"
	}
	if shown += u.Host; u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		shown += "/" + hidden
	}
	return shown
}

// shortDuration is 1m, not 1m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// text is a string, in quotes where YAML would take it for something else.
func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

// plain is a number, a duration, or true or false.
func plain(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: s} }
