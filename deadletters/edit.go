package deadletters

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/longshoremq/longshore/broker"
)

var (
	// ErrUnchanged: an Edit changes nothing.
	ErrUnchanged = errors.New("nothing was changed")

	// ErrNotJSON: the letter's payload is JSON, and the edited one is none.
	ErrNotJSON = errors.New("the payload was JSON and is none any more")
)

// An Edit is how the copy of a letter that is published differs from the letter. Its Apply is a Replay.Edit.
type Edit struct {
	// Value is the whole payload.
	Value []byte
	// Headers are set, each in place of all that have its name.
	Headers []broker.Header
	// Without are names of headers that are removed, as they are written in the letter.
	Without []string
	// NotJSON allows a payload that is no JSON in place of one that is.
	NotJSON bool
}

// Check says all that is wrong with it for a letter; ErrUnchanged and ErrNotJSON are among it.
func (e Edit) Check(l *Letter) error {
	errs := []error{e.CheckRemoved(l)}
	for _, h := range e.Headers {
		errs = append(errs, CheckHeader(h.Key))
	}
	for _, name := range e.Without {
		errs = append(errs, CheckHeader(name))
	}
	was := l.Message.Value
	if bytes.Equal(e.Value, was) && len(e.Headers)+len(e.Without) == 0 {
		errs = append(errs, ErrUnchanged)
	}
	if json.Valid(was) && !json.Valid(e.Value) && !e.NotJSON {
		errs = append(errs, ErrNotJSON)
	}
	return errors.Join(errs...)
}

// CheckRemoved says which of Without the letter does not have: with a slip in the name the copy would be published with what was
// to be mended.
func (e Edit) CheckRemoved(l *Letter) error {
	var errs []error
	for _, name := range e.Without {
		if _, ok := l.Message.Headers.Get(name); !ok {
			errs = append(errs, fmt.Errorf("letter %s has no header %q", FormatPlace(l.Place), name))
		}
	}
	return errors.Join(errs...)
}

// CheckHeader refuses the name of a header that is not the message's own, but longshore's or a broker's.
func CheckHeader(name string) error {
	for _, prefix := range []string{broker.ReservedPrefix, "Nats-"} {
		if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
			return fmt.Errorf("header %q: those that begin with %s are not the message's own", name, prefix)
		}
	}
	return nil
}

// Apply makes a message what was edited.
func (e Edit) Apply(o *broker.Outgoing) error {
	o.Value = e.Value
	o.Headers = slices.DeleteFunc(o.Headers, func(h broker.Header) bool {
		return slices.Contains(e.Without, h.Key) ||
			slices.ContainsFunc(e.Headers, func(set broker.Header) bool { return set.Key == h.Key })
	})
	o.Headers = append(o.Headers, e.Headers...)
	return nil
}
