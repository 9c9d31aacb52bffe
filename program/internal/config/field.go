package config

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/internal/conftag"
)

// elsewhere are fields of Configs that the file says in another way, by what it has for them. All others have tags.
var elsewhere = map[broker.Field]string{
	"TLS.Enabled": "tls: {}", "SASL.Password": "sasl", "Strict": "priority.mode", "MaxOutputBytes": "max_publish_bytes",
	"Uncommitted": "isolation: read_uncommitted",
}

// A Naming says what the file calls a field.
type Naming func(broker.Field) string

// NamesOf are the file's names of the fields of a section, or of a Config. What the file does not have is called as in Go.
func NamesOf(section any) Naming {
	t := reflect.TypeOf(section)
	return func(f broker.Field) string {
		if name, ok := elsewhere[f]; ok {
			return name
		}
		// A section has the Steps of Retry.Topics in their place.
		if name, ok := conftag.Name(t, broker.Field(strings.Replace(string(f), "Retry.Topics.Steps", "Retry.Topics", 1))); ok {
			return name
		}
		return string(f)
	}
}

var camelHump = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z]{2})`)

// SnakeCase is what the file calls a field of a Config that nobody here knows.
func SnakeCase(f broker.Field) string {
	return strings.ToLower(camelHump.ReplaceAllString(string(f), "${1}${3}_${2}${4}"))
}

// AsOptions is what a package found in its Config, in the file's words. What is of no field comes first: of the findings at a
// path and below it the document takes one.
func AsOptions(name Naming, err error) (list handlers.OptionErrors) {
	if f, ok := err.(*broker.Finding); ok { //nolint:errorlint // it, and not what it speaks of
		return handlers.OptionErrors{{Path: name(f.Field), Problem: f.Problem(name)}}
	}
	switch below := err.(type) { //nolint:errorlint // each is looked into
	case interface{ Unwrap() []error }:
		for _, one := range below.Unwrap() {
			list = append(list, AsOptions(name, one)...)
		}
		slices.SortStableFunc(list, func(a, b *handlers.OptionError) int { return min(1, len(a.Path)) - min(1, len(b.Path)) })
		return list
	case interface{ Unwrap() error }:
		if broker.FindingsOf(err) != nil {
			return AsOptions(name, below.Unwrap())
		}
	}
	return handlers.OptionErrors{{Problem: err.Error()}}
}

// FindConfig adds what a package found in the Config that a section of the file is or makes, and nothing for nil.
func (r *report) FindConfig(at string, section any, err error) {
	if err == nil {
		return
	}
	list := AsOptions(NamesOf(section), err)
	for _, e := range list {
		if e.Path == "urls[0]" && r.Has(at+".url") { // one may be said so
			e.Path = "url"
		}
	}
	r.FindOptions(at, list)
}

// checkValues holds the values of the file against their tags. A value that is written is wanted: 0 stands for no default.
func (r *report) checkValues(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			r.checkValues(path, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			r.checkValues(path+"["+strconv.Itoa(i)+"]", v.Index(i))
		}
	case reflect.Map:
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, name := range names {
			r.checkValues(path+"."+name.String(), v.MapIndex(name))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			r.checkField(path, v.Type().Field(i), v.Field(i))
		}
	}
}

func (r *report) checkField(path string, f reflect.StructField, v reflect.Value) {
	key, how, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	switch {
	case how == "inline":
		r.checkValues(path, v)
		return
	case key == "" || key == "-":
		return
	case path != "":
		key = path + "." + key
	}
	if t, ok := v.Interface().(time.Duration); ok && t > conftag.Max {
		p := conftag.TooLong(v)
		r.Find(key, p.Format, p.Args...)
	}
	want, ok := f.Tag.Lookup("want")
	if !ok {
		r.checkValues(key, v)
		return
	}
	if p, wrong := conftag.Look(want, v); wrong && r.Has(key) {
		if p.Index >= 0 {
			key += "[" + strconv.Itoa(p.Index) + "]"
		}
		r.Find(key, p.Format, p.Args...)
	}
}
