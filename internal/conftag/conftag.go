// Package conftag reads the tags of a Config's fields, which say once for Go and for the configuration file what a setting is:
//
//	MaxAttempts int    `yaml:"max_attempts" want:"1.."`
//	Missing     string `yaml:"missing" want:"wait|stop"`
//
// yaml is its name in the file: "-" where the file has none, or says it otherwise; ",inline" for a struct whose fields are the
// file's at the same place.
//
// want is what may be set: words ("wait|stop"), "some" for what must not be empty, or ranges of numbers and durations, with "
// or " between them ("1.. or -1"). A range is "1..", "..1", "0..1", ">0" or ">0..1" without its beginning. Its end may be ms32:
// the most milliseconds that 32 bits can say.
package conftag

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Max is the longest duration that brokers can be told: 32 bits of milliseconds.
const Max = math.MaxInt32 * time.Millisecond

var durationType = reflect.TypeFor[time.Duration]()

// A Problem is what is wrong with a value.
type Problem struct {
	// Index is of the value in its list; -1: it is in none.
	Index  int
	Format string
	Args   []any
}

// String is the problem as text.
func (p Problem) String() string { return fmt.Sprintf(p.Format, p.Args...) }

// Check adds what is wrong with a Config's fields by their tags. The zero value of a field stands for its default, and is right.
func Check(fs *broker.Findings, config any) { check(fs, "", reflect.ValueOf(config)) }

func check(fs *broker.Findings, at broker.Field, v reflect.Value) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	if v.Kind() == reflect.Slice {
		for i := range v.Len() {
			check(fs, at+broker.Field("["+strconv.Itoa(i)+"]"), v.Index(i))
		}
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		f, x := v.Type().Field(i), v.Field(i)
		path := at
		if !f.Anonymous {
			path = Join(at, f.Name)
		}
		want, ok := f.Tag.Lookup("want")
		switch {
		case !f.IsExported():
		case !ok:
			check(fs, path, x)
		case !x.IsZero():
			if p, wrong := Look(want, x); wrong {
				if p.Index >= 0 {
					path += broker.Field("[" + strconv.Itoa(p.Index) + "]")
				}
				fs.Add(path, p.Format, p.Args...)
			}
		}
	}
}

// Join is the path of a field below another.
func Join(at broker.Field, name string) broker.Field {
	if at == "" {
		return broker.Field(name)
	}
	return at + "." + broker.Field(name)
}

// Look holds a value against what is wanted.
func Look(want string, v reflect.Value) (p Problem, wrong bool) {
	p.Index = -1
	words := strings.Split(want, "|")
	switch {
	case want == "some":
		p.Format, wrong = "is empty", v.Len() == 0
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			if p, wrong = Look(want, v.Index(i)); wrong {
				p.Index = i
				return p, true
			}
		}
	case v.Kind() == reflect.String:
		p.Format, p.Args, wrong = "is %q, want one of %v", []any{v.String(), words}, !slices.Contains(words, v.String())
	default:
		return number(want, v)
	}
	return p, wrong
}

// A span is a range of numbers, or of durations in nanoseconds.
type span struct {
	low, high float64
	above     bool // low is not in it
	text      string
}

func (s span) has(x float64) bool { return x <= s.high && (x > s.low || !s.above && x == s.low) }

func number(want string, v reflect.Value) (p Problem, wrong bool) {
	x, duration := value(v), v.Type() == durationType
	var texts []string
	least := math.Inf(1)
	for _, text := range strings.Split(want, " or ") {
		s := spanOf(text, duration)
		if s.has(x) {
			return p, false
		}
		texts, least = append(texts, s.text), min(least, s.low)
	}
	p = Problem{-1, "is %v, want " + strings.Join(texts, " or "), []any{v.Interface()}}
	switch {
	case x < 0 && least == 0 || x < 0 && duration && least >= 0:
		p.Format = "is %v, negative"
	case duration && x > float64(Max):
		p = TooLong(v)
	case duration && x == 0:
		p.Format = "is %v, want more"
	}
	return p, true
}

// TooLong says so of a duration.
func TooLong(v reflect.Value) Problem {
	return Problem{-1, "is %v, more than %v (32 bits of milliseconds)", []any{v.Interface(), Max}}
}

func value(v reflect.Value) float64 {
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	}
	return v.Float()
}

// spanOf reads one range of a tag. A tag is a part of the program, so one that cannot be read is a panic.
func spanOf(text string, duration bool) span {
	read := func(s string, none float64) float64 {
		if s == "" {
			return none
		}
		if s == "ms32" {
			return float64(Max)
		}
		if duration && s != "0" {
			d, err := time.ParseDuration(s)
			must(text, err)
			return float64(d)
		}
		x, err := strconv.ParseFloat(s, 64)
		must(text, err)
		return x
	}
	rest, above := strings.CutPrefix(text, ">")
	low, high, isRange := strings.Cut(rest, "..")
	s := span{low: read(low, math.Inf(-1)), high: read(high, math.Inf(1)), above: above, text: low + " to " + high}
	switch {
	case above && high == "":
		s.text = "more than " + low
	case above:
		s.text = "more than " + low + ", at most " + high
	case !isRange:
		s.high, s.text = s.low, low
	case high == "" || high == "ms32":
		s.text = "at least " + low
	case low == "":
		s.text = "at most " + high
	}
	return s
}

func must(tag string, err error) {
	if err != nil {
		panic(fmt.Sprintf("conftag: the tag want:%q: %v", tag, err))
	}
}

// Name is the path in a file of a field of a Config of type t; "", false where the file has no such key.
func Name(t reflect.Type, f broker.Field) (path string, ok bool) {
	for _, part := range strings.Split(string(f), ".") {
		name, index, _ := strings.Cut(part, "[")
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return "", false
		}
		field, has := t.FieldByName(name)
		key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if !has || key == "" || key == "-" {
			return "", false
		}
		if path != "" {
			path += "."
		}
		path, t = path+key, field.Type
		if index != "" {
			path += "[" + index
		}
	}
	return path, true
}

// Words are those that a field of t may have by its tag.
func Words(t reflect.Type, field string) []string {
	f, _ := t.FieldByName(field)
	return strings.Split(f.Tag.Get("want"), "|")
}
