package handlers

import (
	"encoding"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Options are a handler's options as a configuration file has them: strings, bools, numbers, []any and map[string]any. The zero
// value has none.
type Options struct {
	values map[string]any
	secret func(path string)
	read   *bool // set by who decodes them; nil: nobody asks
}

// NewOptions makes options of decoded YAML or JSON. values is not copied.
func NewOptions(values map[string]any) Options { return Options{values: values} }

// OnSecret is o, which tells f the path of each option that is decoded into a broker.Secret.
func (o Options) OnSecret(f func(path string)) Options {
	o.secret = f
	return o
}

// An OptionError is one thing that is wrong with options. It never shows a value, which may be a secret.
type OptionError struct {
	// Path is where: names joined by dots, positions in brackets: "headers.X-Team", "permanent_codes[2]". Empty: the options as a
	// whole.
	Path string
	// Problem says what.
	Problem string
}

// Error is "path: problem".
func (e *OptionError) Error() string {
	if e.Path == "" {
		return e.Problem
	}
	return e.Path + ": " + e.Problem
}

// OptionErrors are all that is wrong with options. Get at them with errors.As, to say in which line of a file each one is.
type OptionErrors []*OptionError

// Error lists them, separated by "; ".
func (es OptionErrors) Error() string {
	texts := make([]string, len(es))
	for i, e := range es {
		texts[i] = e.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns each, for errors.Is and errors.As.
func (es OptionErrors) Unwrap() []error {
	errs := make([]error, len(es))
	for i, e := range es {
		errs[i] = e
	}
	return errs
}

func (es *OptionErrors) add(path, format string, args ...any) {
	*es = append(*es, &OptionError{path, fmt.Sprintf(format, args...)})
}

// err is es as an error: nil when there is nothing wrong.
func (es OptionErrors) err() error {
	if len(es) == 0 {
		return nil
	}
	return es
}

// Decode sets the fields of the struct that into points to, by their yaml tags; what the options do not name keeps its value, so
// that defaults are set beforehand. It is strict: unknown names, values of another type, numbers out of range and empty values
// are all reported at once as OptionErrors. Durations are strings such as "1m30s". Fields may be strings, bools, numbers,
// durations, slices, maps by string, structs (those tagged ",inline" have their fields here), pointers to these, any, and what
// implements encoding.TextUnmarshaler.
func (o Options) Decode(into any) error {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("handlers: Decode needs a pointer to a struct, not a %T", into))
	}
	d := o.decode(v.Elem())
	return d.errs.err()
}

// decodeChecked decodes and then checks, and reports the findings of both: of two at a path or below it the first, for what
// could not be decoded is not missing as well.
func decodeChecked(o Options, into any, check func() OptionErrors) error {
	d := o.decode(reflect.ValueOf(into).Elem())
	for _, e := range check() {
		if !slices.ContainsFunc(d.errs, func(f *OptionError) bool {
			return f.Path == e.Path || strings.HasPrefix(f.Path, e.Path+".") || strings.HasPrefix(e.Path, f.Path+".")
		}) {
			d.errs = append(d.errs, e)
		}
	}
	return d.errs.err()
}

// decode sets the fields of the struct v.
func (o Options) decode(v reflect.Value) *decoder {
	if o.read != nil {
		*o.read = true
	}
	d := &decoder{secret: o.secret}
	if o.values != nil {
		d.structure("", o.values, v)
	}
	return d
}

type decoder struct {
	errs   OptionErrors
	secret func(path string)
}

var durationType = reflect.TypeFor[time.Duration]()

// value sets v from x.
func (d *decoder) value(path string, x any, v reflect.Value) {
	if x == nil {
		d.errs.add(path, "has no value")
		return
	}
	if t, ok := x.(Text); ok {
		x = t.as(v)
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.text(path, x, u)
		return
	}
	if v.Type() == durationType {
		d.duration(path, x, v)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		d.value(path, x, v.Elem())
	case reflect.Struct:
		if m, ok := x.(map[string]any); ok {
			d.structure(path, m, v)
		} else {
			d.wrong(path, x, "a mapping")
		}
	case reflect.Map:
		d.mapping(path, x, v)
	case reflect.Slice:
		d.list(path, x, v)
	case reflect.Interface:
		v.Set(reflect.ValueOf(x))
	default:
		d.scalar(path, x, v)
	}
}

// structure sets the fields of v.
func (d *decoder) structure(path string, m map[string]any, v reflect.Value) {
	fields := map[string]reflect.Value{}
	optionFields(v, fields)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if field, ok := fields[name]; ok {
			d.value(join(path, name), m[name], field)
		} else {
			d.unknown(join(path, name), slices.Sorted(maps.Keys(fields)))
		}
	}
}

func (d *decoder) unknown(path string, known []string) {
	if len(known) == 0 {
		d.errs.add(path, "unknown option; there is none")
		return
	}
	d.errs.add(path, "unknown option; known: %s", strings.Join(known, ", "))
}

// optionFields are the fields of a struct that options may have, by name, with those of structs that are inline.
func optionFields(v reflect.Value, fields map[string]reflect.Value) {
	for i := range v.NumField() {
		switch name, how, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ","); {
		case how == "inline":
			optionFields(v.Field(i), fields)
		case name != "" && name != "-":
			fields[name] = v.Field(i)
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (d *decoder) mapping(path string, x any, v reflect.Value) {
	m, ok := x.(map[string]any)
	if !ok {
		d.wrong(path, x, "a mapping")
		return
	}
	out := reflect.MakeMapWithSize(v.Type(), len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		e := reflect.New(v.Type().Elem()).Elem()
		d.value(join(path, name), m[name], e)
		out.SetMapIndex(reflect.ValueOf(name).Convert(v.Type().Key()), e)
	}
	v.Set(out)
}

func (d *decoder) list(path string, x any, v reflect.Value) {
	list, ok := x.([]any)
	if !ok {
		d.wrong(path, x, "a list")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(list), len(list))
	for i, e := range list {
		d.value(path+"["+strconv.Itoa(i)+"]", e, out.Index(i))
	}
	v.Set(out)
}

func (d *decoder) text(path string, x any, u encoding.TextUnmarshaler) {
	s, ok := x.(string)
	if !ok {
		d.wrong(path, x, "a string")
		return
	}
	if err := u.UnmarshalText([]byte(s)); err != nil {
		d.errs.add(path, "%v", err)
	}
	if _, is := u.(*broker.Secret); is && d.secret != nil {
		d.secret(path)
	}
}

func (d *decoder) duration(path string, x any, v reflect.Value) {
	const wants = "a duration such as 10s or 1m30s"
	s, ok := x.(string)
	if !ok {
		d.wrong(path, x, wants)
		return
	}
	t, err := time.ParseDuration(s)
	if err != nil {
		d.errs.add(path, "wants %s, %s", wants, notDuration(s))
		return
	}
	v.SetInt(int64(t))
}

var (
	durationParts = regexp.MustCompile(`^[+-]?((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+$`)
	longerUnit    = regexp.MustCompile(`(?i)^\d+ *(d|days?|w|weeks?)$`)
)

// notDuration says what is wrong with a text that is no duration, without showing it: it may be a secret in the wrong place.
func notDuration(s string) string {
	_, notNumber := strconv.ParseFloat(s, 64)
	parses := func(s string) bool { _, err := time.ParseDuration(s); return err == nil }
	switch {
	case strings.TrimSpace(s) == "":
		return "is empty"
	case notNumber == nil:
		return "is a number without a unit"
	case durationParts.MatchString(s):
		return "is longer than 292 years"
	case parses(strings.ToLower(s)):
		return "has a unit in capitals"
	case parses(strings.Join(strings.Fields(s), "")):
		return "has a blank in it"
	case longerUnit.MatchString(s):
		return "is in days or weeks: the units are h, m, s and ms"
	}
	return "is none"
}

func (d *decoder) scalar(path string, x any, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if s, ok := x.(string); ok {
			v.SetString(s)
			return
		}
		d.wrong(path, x, "a string")
	case reflect.Bool:
		if b, ok := x.(bool); ok {
			v.SetBool(b)
			return
		}
		d.wrong(path, x, "true or false")
	case reflect.Float32, reflect.Float64:
		switch f, ok := number(x); {
		case !ok:
			d.wrong(path, x, "a number")
		case math.IsNaN(f) || math.IsInf(f, 0):
			d.errs.add(path, "wants a number, is not a finite one")
		default:
			v.SetFloat(f)
		}
	default:
		if !v.CanInt() && !v.CanUint() {
			panic(fmt.Sprintf("handlers: option %s has a type that options cannot have: %s", path, v.Type()))
		}
		d.whole(path, x, v)
	}
}

// whole sets v, a whole number, from x.
func (d *decoder) whole(path string, x any, v reflect.Value) {
	n, ok := wholeNumber(x)
	_, isNumber := number(x)
	switch {
	case !ok && isNumber:
		d.errs.add(path, "wants a whole number, is one with a fraction, or too large")
	case !ok:
		d.wrong(path, x, "a whole number")
	case v.CanUint() && (n < 0 || v.OverflowUint(uint64(n))), v.CanInt() && v.OverflowInt(n): //nolint:gosec // not negative
		d.errs.add(path, "is out of range")
	case v.CanUint():
		v.SetUint(uint64(n)) //nolint:gosec // not negative
	default:
		v.SetInt(n)
	}
}

func number(x any) (float64, bool) {
	switch n := reflect.ValueOf(x); {
	case n.CanInt():
		return float64(n.Int()), true
	case n.CanUint():
		return float64(n.Uint()), true
	case n.CanFloat():
		return n.Float(), true
	}
	return 0, false
}

// wholeNumber is x as a whole number. Decoded JSON has only floats, so those without a fraction count.
func wholeNumber(x any) (int64, bool) {
	switch n := reflect.ValueOf(x); {
	case n.CanInt():
		return n.Int(), true
	case n.CanUint():
		return int64(n.Uint()), n.Uint() <= math.MaxInt64
	case n.CanFloat():
		f := n.Float()
		return int64(f), f == math.Trunc(f) && math.Abs(f) < 1<<53
	}
	return 0, false
}

// wrong says what was wanted and what kind of thing is there.
func (d *decoder) wrong(path string, x any, want string) {
	is := "something else"
	switch reflect.ValueOf(x).Kind() {
	case reflect.String:
		is = "a string"
	case reflect.Bool:
		is = "true or false"
	case reflect.Slice:
		is = "a list"
	case reflect.Map:
		is = "a mapping"
	default:
		if _, ok := number(x); ok {
			is = "a number"
		}
	}
	if want == "a string" && is != "a list" && is != "a mapping" {
		is += ": put it in quotes"
	}
	d.errs.add(path, "wants %s, is %s", want, is)
}
