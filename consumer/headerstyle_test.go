package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// Dead letters carry the headers that the tools of other systems read, once each, beside ours and the message's own.
func TestHeaderStyles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "dead": 1}})
		own := []broker.Header{{Key: "own", Value: []byte("h")}, {Key: "kafka_dlt-original-topic", Value: []byte("of another life")},
			{Key: "__connect.errors.topic", Value: []byte("too")}}
		for _, v := range []string{"error", "panic"} {
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte(v), Headers: own}); err != nil {
				t.Fatal(err)
			}
		}
		r := start(t, b, consumer.Config{
			Name:  "orders",
			Pool:  consumer.Pool{Max: 1},
			Retry: consumer.Retry{MaxAttempts: 1},
			DeadLetter: &consumer.DeadLetter{
				Publisher: b.Publisher(), Topic: "dead", Headers: []consumer.HeaderStyle{consumer.SpringHeaders, consumer.ConnectHeaders},
			},
			Handler: func(_ context.Context, m *consumer.Message) error {
				if string(m.Value) == "panic" {
					panic("oh")
				}
				return errors.New("broken\nline")
			}})
		time.Sleep(10 * time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		dead := b.Messages("dead")
		if len(dead) != 2 {
			t.Fatalf("%d dead letters", len(dead))
		}
		for _, m := range dead {
			checkStyles(t, m)
		}
	})
}

func checkStyles(t *testing.T, m broker.Message) {
	t.Helper()
	all := map[string]string{}
	for k, v := range m.Headers.All() {
		if _, twice := all[k]; twice {
			t.Errorf("header %s is there twice", k)
		}
		all[k] = string(v)
	}
	class, text := "longshore.error", "broken line"
	offset := byte(0)
	if string(m.Value) == "panic" {
		class, text, offset = "longshore.panic", "oh", 1
	}
	for k, want := range map[string]string{
		"own":                                   "h",
		broker.HeaderOriginalTopic:              "in",
		"kafka_dlt-original-topic":              "in",
		"kafka_dlt-original-partition":          "\x00\x00\x00\x00",
		"kafka_dlt-original-offset":             "\x00\x00\x00\x00\x00\x00\x00" + string(rune(offset)),
		"kafka_dlt-original-timestamp-type":     "CreateTime",
		"kafka_dlt-exception-fqcn":              class,
		"__connect.errors.topic":                "in",
		"__connect.errors.partition":            "0",
		"__connect.errors.offset":               string(rune('0' + offset)),
		"__connect.errors.connector.name":       "orders",
		"__connect.errors.exception.class.name": class,
	} {
		if all[k] != want {
			t.Errorf("%s: header %s is %q, want %q", m.Value, k, all[k], want)
		}
	}
	if !strings.Contains(all["kafka_dlt-exception-message"], text) ||
		all["kafka_dlt-exception-message"] != all["__connect.errors.exception.message"] {
		t.Errorf("messages: %q, %q", all["kafka_dlt-exception-message"], all["__connect.errors.exception.message"])
	}
	if len(all["kafka_dlt-original-timestamp"]) != 8 {
		t.Errorf("timestamp %q", all["kafka_dlt-original-timestamp"])
	}
	stack := all["kafka_dlt-exception-stacktrace"]
	if got := strings.Contains(stack, "headerstyle_test.go"); got != (text == "oh") ||
		stack != all["__connect.errors.exception.stacktrace"] {
		t.Errorf("stack of %s: %.100q", m.Value, stack)
	}
}

func TestUnknownHeaderStyle(t *testing.T) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
	_, err := consumer.New(consumer.Config{
		Source: b.Source(membroker.SourceConfig{}), Handler: func(context.Context, *consumer.Message) error { return nil },
		DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead", Headers: []consumer.HeaderStyle{"spring", "camel"}},
	})
	if err == nil || !strings.Contains(err.Error(), `DeadLetter.Headers[1] is "camel", want one of [spring connect]`) {
		t.Error(err)
	}
}

// A namedSource has messages with a name instead of an offset.
type namedSource struct{ broker.Source }

func (s namedSource) Receive(dst []broker.Message) (int, error) {
	n, err := s.Source.Receive(dst)
	for i := range dst[:n] {
		dst[i].Partition, dst[i].Offset, dst[i].Name = -1, -1, "1700000000-7"
	}
	return n, err
}

// A letter of a message that has a name and no offset says the name, and no offset in any style.
func TestLetterOfANamedMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "dead": 1}})
		produce(t, b, 1)
		r := start(t, b, consumer.Config{
			Source: namedSource{b.Source(membroker.SourceConfig{Topics: []string{"in"}})},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead",
				Headers: []consumer.HeaderStyle{consumer.SpringHeaders, consumer.ConnectHeaders}},
			Handler: func(context.Context, *consumer.Message) error { return consumer.Permanent(errors.New("no")) },
		})
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		letters := b.Messages("dead")
		if len(letters) != 1 {
			t.Fatalf("%d letters", len(letters))
		}
		if id, _ := letters[0].Headers.Get(broker.HeaderOriginalID); string(id) != "1700000000-7" {
			t.Errorf("the letter's message is named %q", id)
		}
		for k, v := range letters[0].Headers.All() {
			if strings.HasSuffix(strings.ToLower(k), "offset") || strings.HasSuffix(strings.ToLower(k), "partition") {
				t.Errorf("header %s: %q, of a message that has none", k, v)
			}
		}
	})
}
