package deadletters

import (
	"errors"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
)

// TestEdit: what an edit may not be is said all at once, and what it makes of a message.
func TestEdit(t *testing.T) {
	headers := []broker.Header{{Key: "tenant", Value: []byte("us")}, {Key: "trace", Value: []byte("1")}, {Key: "tenant"}}
	l := &Letter{Message: &broker.Message{Value: []byte(`{"a":1}`), Headers: broker.NewHeaders(headers...)}}
	for _, c := range []struct {
		edit Edit
		is   error
		want []string // in the error; none: there is none
	}{
		{edit: Edit{Value: []byte(`{"a":1}`)}, is: ErrUnchanged, want: []string{"nothing was changed"}},
		{edit: Edit{Value: []byte(`{"a":2}`)}},
		{edit: Edit{Value: []byte(`{"a":1}`), Without: []string{"trace"}}},
		{edit: Edit{Value: []byte(`{"a":`)}, is: ErrNotJSON, want: []string{"none any more"}},
		{edit: Edit{Value: []byte(`{"a":`), NotJSON: true}},
		{edit: Edit{Value: []byte(`{`), Without: []string{"Trace", "nats-x"}, Headers: []broker.Header{{Key: "Longshore-Runs"}}},
			is: ErrNotJSON, want: []string{`no header "Trace"`, `no header "nats-x"`, `header "nats-x"`, `header "Longshore-Runs"`}},
	} {
		err := c.edit.Check(l)
		if (err == nil) != (len(c.want) == 0) || !errors.Is(err, c.is) {
			t.Errorf("%+v: %v", c.edit, err)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, without %q", c.edit, err, want)
			}
		}
	}

	out := broker.Outgoing{Value: l.Message.Value, Headers: headers}
	e := Edit{Value: []byte("{}"), Headers: []broker.Header{{Key: "tenant", Value: []byte("eu")}}, Without: []string{"trace"}}
	if err := e.Apply(&out); err != nil || string(out.Value) != "{}" || len(out.Headers) != 1 ||
		string(out.Headers[0].Value) != "eu" {
		t.Errorf("%v %+v", err, out)
	}
}
