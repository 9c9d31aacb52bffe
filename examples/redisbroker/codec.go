package redisbroker

import (
	"strconv"
	"strings"

	"github.com/longshoremq/longshore/broker"
)

// An entry has the fields "v" (the value), "k" (the key), and "h:Name" for each header, in their order. Fields by other names, of
// other programs, are headers by these names. A value or key that is not there is nil; an entry needs one field at least.
const (
	fieldValue  = "v"
	fieldKey    = "k"
	fieldHeader = "h:"
	fieldNone   = "n"
)

func encode(m *broker.Outgoing) []any {
	fields := []any{fieldNone, ""}
	if m.Value != nil {
		fields = []any{fieldValue, m.Value}
	}
	if m.Key != nil {
		fields = append(fields, fieldKey, m.Key)
	}
	for _, h := range m.Headers {
		fields = append(fields, fieldHeader+h.Key, h.Value)
	}
	if m.ID != "" {
		fields = append(fields, fieldHeader+broker.HeaderID, m.ID)
	}
	return fields
}

// decode makes a message of what another program may have written, so any fields are one.
func decode(topic, id string, fields []any) broker.Message {
	m := broker.Message{Topic: topic, Partition: -1, Offset: -1, Name: id, Nanos: nanos(id)}
	var headers []broker.Header
	for i := 0; i+1 < len(fields); i += 2 {
		name, _ := fields[i].(string)
		value, _ := fields[i+1].(string)
		switch {
		case name == fieldValue:
			m.Value = []byte(value)
		case name == fieldKey:
			m.Key = []byte(value)
		case name == fieldNone && value == "":
		default:
			headers = append(headers, broker.Header{Key: strings.TrimPrefix(name, fieldHeader), Value: []byte(value)})
		}
	}
	m.Headers = broker.NewHeaders(headers...)
	return m
}

// A delivery is a message as it came, and the count of its deliveries.
type delivery struct {
	msg   broker.Message
	count int32
}

// deliveries reads what pullScript returned.
func deliveries(topic string, list any) (ds []delivery) {
	es, _ := list.([]any)
	for _, x := range es {
		if e, _ := x.([]any); len(e) == 3 {
			id, _ := e[0].(string)
			count, _ := e[1].(int64)
			fields, _ := e[2].([]any)
			ds = append(ds, delivery{decode(topic, id, fields), int32(count)})
		}
	}
	return ds
}

// nanos is the time in an id, which is milliseconds, a dash, and a number.
func nanos(id string) int64 {
	ms, _, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseInt(ms, 10, 64)
	return n * 1e6
}

func sizeOf(m *broker.Message) int64 { return int64(len(m.Key) + len(m.Value) + len(m.Headers.Raw)) }
