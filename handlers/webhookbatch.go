package handlers

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/longshoremq/longshore/consumer"
)

// encodings are how a payload can stand in an array: each returns it as JSON, or why it cannot.
var encodings = map[string]func(payload []byte) ([]byte, error){
	"json": func(payload []byte) ([]byte, error) {
		if !json.Valid(payload) {
			return nil, errors.New("its payload is no JSON; see the option encoding")
		}
		return payload, nil
	},
	"text": func(payload []byte) ([]byte, error) {
		if !utf8.Valid(payload) {
			return nil, errors.New("its payload is no text in UTF-8; see the option encoding")
		}
		return json.Marshal(string(payload))
	},
	"base64": func(payload []byte) ([]byte, error) {
		return json.Marshal(base64.StdEncoding.EncodeToString(payload))
	},
}

// An element is a message in the array of a batch.
type element struct {
	ID        string            `json:"id,omitempty"` // as in Longshore-Id
	Topic     string            `json:"topic"`
	Partition *int32            `json:"partition,omitempty"`
	Offset    *int64            `json:"offset,omitempty"`
	Key       *string           `json:"key,omitempty"` // percent-encoded, as in Longshore-Key
	Attempt   int32             `json:"attempt"`
	Headers   map[string]string `json:"headers,omitempty"` // those of forward_headers
	Omitted   []string          `json:"omitted,omitempty"` // those of them that are no text in UTF-8
	Value     json.RawMessage   `json:"value"`             // null: a tombstone
}

// WebhookBatchFactory makes a batch handler that POSTs each batch as a JSON array, with the options of webhook and Encoding. What
// the answer means for the message there, it means for all of them here. Where it says that a retry will not help, the halves are
// sent, until the message that it means is alone.
func WebhookBatchFactory(s *Setup, o Options) (consumer.BatchHandler, error) {
	w, err := s.webhook(o, WebhookConfig{ContentType: "application/json"}, WebhookConfig.checkEncoding)
	if err != nil {
		return nil, err
	}
	return shipment{encode: w.config.element, send: func(ctx context.Context, _ []*consumer.Message, elements [][]byte) error {
		return w.call(ctx, bytes.Join([][]byte{[]byte("["), bytes.Join(elements, []byte(",")), []byte("]")}, nil), nil)
	}}.handle, nil
}

func (c WebhookConfig) checkEncoding(errs OptionErrors) OptionErrors {
	if c.Encoding != "" && encodings[c.Encoding] == nil {
		errs.add("encoding", "wants json, text or base64")
	}
	return errs
}

// element is m in the array.
func (c WebhookConfig) element(m *consumer.Message) ([]byte, error) {
	e := element{ID: Identity(m), Topic: m.Topic, Attempt: max(1, m.Attempt), Value: json.RawMessage("null")}
	if m.Partition >= 0 {
		e.Partition = &m.Partition
	}
	if m.Offset >= 0 {
		e.Offset = &m.Offset
	}
	if m.Key != nil {
		key := escape(string(m.Key))
		e.Key = &key
	}
	for _, name := range c.ForwardHeaders {
		switch v, ok := m.Headers.Get(name); {
		case !ok:
		case !utf8.Valid(v):
			e.Omitted = append(e.Omitted, name)
		default:
			if e.Headers == nil {
				e.Headers = map[string]string{}
			}
			e.Headers[name] = string(v)
		}
	}
	encode := encodings[c.Encoding]
	if encode == nil {
		encode = encodings["json"]
	}
	if m.Value != nil {
		var err error
		if e.Value, err = encode(m.Value); err != nil {
			return nil, consumer.Undecodable(err)
		}
	}
	part, err := json.Marshal(e)
	if err != nil {
		return nil, consumer.Undecodable(fmt.Errorf("writing it as JSON: %w", err))
	}
	return part, nil
}
