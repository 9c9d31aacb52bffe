package program

import (
	"fmt"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

func TestStreamsOfAConfiguration(t *testing.T) {
	nats := func(url, stream string, subjects ...string) *config.Consumer {
		return &config.Consumer{Source: config.Source{NATS: &config.NATS{NATSAccess: config.NATSAccess{URL: url},
			Config: natsbroker.Config{Stream: stream, Subjects: subjects}}}}
	}
	letters := func(c *config.Consumer, to string, routes ...string) *config.Consumer {
		c.DeadLetter = &consumer.DeadLetter{Topic: to}
		for _, to := range routes {
			c.DeadLetter.Routes = append(c.DeadLetter.Routes, consumer.LetterRoute{Class: "decode", Topic: to})
		}
		return c
	}
	for _, c := range []struct {
		consumers map[string]*config.Consumer
		want      string
	}{
		{map[string]*config.Consumer{"a": nats("nats://h", "A", "a.>")}, "[]"},
		{map[string]*config.Consumer{"a": nats("", "A", "a.>")}, "[{A [a.>]}]"},
		{map[string]*config.Consumer{"a": letters(nats("", "A", "a.>"), "dead.a"), "b": letters(nats("", "A", "a.b", "b.*"), "dead.b")},
			"[{A [a.> b.*]} {LONGSHORE_DEAD [dead.a dead.b]}]"},
		{map[string]*config.Consumer{"a": letters(nats("", "A", "a.>"), "dead.a"), "dead": nats("", "DEAD", "dead.>")},
			"[{A [a.>]} {DEAD [dead.>]}]"},
		{map[string]*config.Consumer{"a": letters(nats("", "A", "a.>"), "dead.a", "dead.b", "dead.a")},
			"[{A [a.>]} {LONGSHORE_DEAD [dead.a dead.b]}]"},
		{map[string]*config.Consumer{"a": nats("", "A", "a"), "b": nats("", "A", "a")}, "[{A [a]}]"},
	} {
		if got := fmt.Sprint(streamsOf(&config.File{Consumers: c.consumers})); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// TestEnsureStreams: missing ones are made; to others subjects are added, and nothing is taken away.
func TestEnsureStreams(t *testing.T) {
	t.Parallel()
	e, err := startNATS(t.Context(), zerolog.Nop(), t.TempDir(), server.RANDOM_PORT)
	if err != nil {
		t.Fatal(err)
	}
	defer e.stop()
	for _, c := range []struct {
		streams []stream
		want    string // the error; none: all is as wanted
	}{
		{[]stream{{"A", []string{"a.x"}}}, ""},
		{[]stream{{"A", []string{"b"}}}, ""},
		{[]stream{{"A", []string{"a.>"}}}, ""},        // wider
		{[]stream{{"A", []string{"a.x", "a.y"}}}, ""}, // narrower
		{[]stream{{"A", []string{"b", "c"}}, {"B", []string{"d.*"}}}, ""},
		{[]stream{{"A", []string{"*.*.x"}}}, `stream A of the embedded NATS server: it has the subject "a.>", which overlaps with ` +
			`"*.*.x", and neither takes the other`},
		{[]stream{{"C", []string{"e", "a.x"}}}, `stream C of the embedded NATS server: its subject "a.x" overlaps with "a.>", which ` +
			`belongs to stream A, made by an earlier configuration and now with 0 messages. Read it from there (stream: A), or`},
		{[]stream{{"A", []string{"d.x"}}}, `its subject "d.x" overlaps with "d.*", which belongs to stream B`},
	} {
		if err := e.ensureStreams(t.Context(), c.streams); (c.want == "") != (err == nil) || err != nil &&
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.streams, err, c.want)
		}
	}
	nc, err := nats.Connect(e.url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"A": "[a.> b c]", "B": "[d.*]"} {
		s, err := js.Stream(t.Context(), name)
		if err != nil || fmt.Sprint(s.CachedInfo().Config.Subjects) != want {
			t.Errorf("stream %s: %v %v", name, s, err)
		}
	}
}
