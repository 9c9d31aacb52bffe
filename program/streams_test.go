package program

import (
	"fmt"
	"testing"

	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestStreamsOfAConfiguration(t *testing.T) {
	nats := func(url, stream string, subjects ...string) *config.Consumer {
		return &config.Consumer{Source: config.Source{NATS: &config.NATS{URL: url, Stream: stream, Subjects: subjects}}}
	}
	letters := func(c *config.Consumer, to string) *config.Consumer {
		c.DeadLetter = &config.DeadLetter{To: to}
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
		{map[string]*config.Consumer{"a": letters(nats("", "A", "a.>"), "dead.a"), "dead": nats("", "DEAD", "dead.>")}, "[{A [a.>]} {DEAD [dead.>]}]"},
		{map[string]*config.Consumer{"a": nats("", "A", "a"), "b": nats("", "A", "a")}, "[{A [a]}]"},
	} {
		if got := fmt.Sprint(streamsOf(&config.File{Consumers: c.consumers})); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// TestEnsureStreams: missing ones are made; to others subjects are added, and nothing else is changed.
func TestEnsureStreams(t *testing.T) {
	e, err := startNATS(t.TempDir(), server.RANDOM_PORT)
	if err != nil {
		t.Fatal(err)
	}
	defer e.stop()
	for _, streams := range [][]stream{{{"A", []string{"a.>"}}}, {{"A", []string{"b"}}}, {{"A", []string{"a.>", "b"}}, {"B", []string{"c"}}}} {
		if err := e.ensureStreams(t.Context(), streams); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.ensureStreams(t.Context(), []stream{{"C", []string{"a.x"}}}); err == nil {
		t.Error("a stream whose subjects another has was accepted")
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
	for name, want := range map[string]string{"A": "[a.> b]", "B": "[c]"} {
		s, err := js.Stream(t.Context(), name)
		if err != nil || fmt.Sprint(s.CachedInfo().Config.Subjects) != want {
			t.Errorf("stream %s: %v %v", name, s, err)
		}
	}
}
