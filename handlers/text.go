package handlers

import (
	"encoding"
	"reflect"
	"strconv"
)

// A Text is a value of Options whose type the field decides, as with one that was filled in from the environment: it is a string
// to a field that wants a string, and a number to one that wants a number.
type Text string

// as is t as what v wants; where it is not that, it stays a string, and the decoder says so.
func (t Text) as(v reflect.Value) any {
	s := string(t)
	if _, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok || v.Type() == durationType {
		return s
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return t // for what it points to, or whoever asks what it is
	case reflect.Bool:
		if b, err := strconv.ParseBool(s); err == nil {
			return b
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n
		}
	case reflect.Float32, reflect.Float64:
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return f
		}
	}
	return s
}
