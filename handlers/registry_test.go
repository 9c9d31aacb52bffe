package handlers_test

import (
	"net/http"
	"net/http/httptest"

	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/rs/zerolog"
)

func nothing(*handlers.Setup, handlers.Options) (consumer.Handler, error) {
	return func(context.Context, *consumer.Message) error { return nil }, nil
}

func TestRegistryRefuses(t *testing.T) {
	r := handlers.NewRegistry()
	if err := r.AddReadyMade(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		register string
		factory  handlers.Factory
		want     string
	}{
		"duplicate": {"log", nothing, `"log" is registered already; known: exec, log, publish, webhook`},
		"empty":     {"", nothing, "a name consists of"},
		"blank":     {"my handler", nothing, "a name consists of"},
		"nil":       {"mine", nil, "it is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			err := r.Register(c.register, c.factory)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if name == "duplicate" && !errors.Is(err, handlers.ErrDuplicate) {
				t.Errorf("%v is not ErrDuplicate", err)
			}
		})
	}
	_, err := r.Build("weblook", nil, handlers.Options{})
	if !errors.Is(err, handlers.ErrUnknown) || !strings.Contains(err.Error(), `"weblook"; known: exec, log, publish, webhook`) {
		t.Errorf("unknown name: %v", err)
	}
}

func TestRegistriesAreApart(t *testing.T) {
	a, b := handlers.NewRegistry(), handlers.NewRegistry()
	if err := a.Register("mine", nothing); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Build("mine", nil, handlers.Options{}); !errors.Is(err, handlers.ErrUnknown) {
		t.Errorf("the other registry has it: %v", err)
	}
	if _, err := a.Build("mine", nil, handlers.Options{}); err != nil {
		t.Error(err)
	}
}

func TestRegisterPanicsOnADuplicate(t *testing.T) {
	defer func() {
		if p, _ := recover().(error); !errors.Is(p, handlers.ErrDuplicate) {
			t.Errorf("recovered %v, want ErrDuplicate", p)
		}
	}()
	handlers.Register("webhook", nothing)
}

// All that is wrong with options is told at once, by path, and no value is.
func TestBuildReportsAllAtOnce(t *testing.T) {
	_, err := handlers.Default().Build("webhook", &handlers.Setup{}, handlers.NewOptions(map[string]any{
		"url":                 7,
		"tiemout":             "canary-1",
		"timeout":             "canary-2",
		"headers":             map[string]any{"X Bad": "canary-3"},
		"forward_headers":     []any{"ok", true},
		"bearer_token":        nil,
		"basic":               "canary-4",
		"max_retry_after":     "-1s",
		"content_type":        []any{"canary-5"},
		"allow_insecure_auth": "canary-6",
	}))
	var all handlers.OptionErrors
	if !errors.As(err, &all) {
		t.Fatalf("no OptionErrors in %v", err)
	}
	got := map[string]string{}
	for _, e := range all {
		if _, twice := got[e.Path]; twice {
			t.Errorf("%s is told twice", e.Path)
		}
		got[e.Path] = e.Problem
	}
	for path, want := range map[string]string{
		"url":                 "wants a string, is a number: put it in quotes",
		"tiemout":             "unknown option; known: allow_insecure_auth, basic, bearer_token,",
		"timeout":             "wants a duration such as 10s or 1m30s, is none",
		"headers.X Bad":       "is no name for a header",
		"forward_headers[1]":  "wants a string, is true or false: put it in quotes",
		"bearer_token":        "has no value",
		"basic":               "wants a mapping, is a string",
		"max_retry_after":     "is -1s, want more than 0",
		"content_type":        "wants a string, is a list",
		"allow_insecure_auth": "wants true or false, is a string",
	} {
		if !strings.Contains(got[path], want) {
			t.Errorf("%s: %q, want %q", path, got[path], want)
		}
		delete(got, path)
	}
	if len(got) != 0 {
		t.Errorf("told besides: %v", got)
	}
	if strings.Contains(err.Error(), "canary") {
		t.Errorf("a value is in the error: %v", err)
	}
}

func TestOptionsNumbers(t *testing.T) {
	type numbers struct {
		N int8    `yaml:"n"`
		F float64 `yaml:"f"`
		U uint16  `yaml:"u"`
	}
	for _, c := range []struct {
		n, f any
		want string
	}{
		{127, 1, ""},
		{uint64(5), 2.5, ""},
		{5.0, int64(3), ""},
		{128, 1.0, "n: is out of range"},
		{1.5, 1.0, "n: wants a whole number, is one with a fraction, or too large"},
		{uint64(1 << 63), 1.0, "n: wants a whole number, is one with a fraction, or too large"},
		{1, math.NaN(), "f: wants a number, is not a finite one"},
		{1, math.Inf(1), "f: wants a number, is not a finite one"},
		{"1", 1.0, "n: wants a whole number, is a string"},
		{1, "1", "f: wants a number, is a string"},
		{true, true, "f: wants a number, is true or false; n: wants a whole number, is true or false"},
	} {
		var into numbers
		err := handlers.NewOptions(map[string]any{"n": c.n, "f": c.f}).Decode(&into)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%v, %v: %v", c.n, c.f, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v, %v: error %v, want %q", c.n, c.f, err, c.want)
		}
	}
	for u, want := range map[any]string{0: "", 65535: "", handlers.Text("7"): "",
		65536: "u: is out of range", -1: "u: is out of range",
		1.5: "u: wants a whole number, is one with", "7": "u: wants a whole number, is a string"} {
		err := handlers.NewOptions(map[string]any{"u": u}).Decode(&numbers{})
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: error %v, want %q", u, err, want)
		}
	}
}

// TestNoDuration: what is wrong with a text that is no duration is told, but not the text.
func TestNoDuration(t *testing.T) {
	for text, want := range map[string]string{
		"10S":          "has a unit in capitals",
		"1 m 30 s":     "has a blank in it",
		"1d":           "is in days or weeks: the units are h, m, s and ms",
		"2 Weeks":      "is in days or weeks: the units are h, m, s and ms",
		"10":           "is a number without a unit",
		"":             "is empty",
		"99999999h":    "is longer than 292 years",
		"9999999h.5ms": "is longer than 292 years",
		"1h30":         "is none",
		"canary":       "is none",
	} {
		into := struct {
			D time.Duration `yaml:"d"`
		}{}
		err := handlers.NewOptions(map[string]any{"d": text}).Decode(&into)
		if want := "d: wants a duration such as 10s or 1m30s, " + want; err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// What options do not name keeps its default, and deep structures are filled.
func TestOptionsKeepDefaults(t *testing.T) {
	type inner struct {
		A []map[string]int `yaml:"a"`
		P *string          `yaml:"p"`
		X any              `yaml:"x"`
	}
	into := struct {
		Kept  string `yaml:"kept"`
		Inner inner  `yaml:"inner"`
	}{Kept: "default"}
	err := handlers.NewOptions(map[string]any{"inner": map[string]any{
		"a": []any{map[string]any{"one": 1}}, "p": "text", "x": []any{1}}}).Decode(&into)
	if err != nil {
		t.Fatal(err)
	}
	if into.Kept != "default" || into.Inner.A[0]["one"] != 1 || *into.Inner.P != "text" || into.Inner.X == nil {
		t.Errorf("decoded %+v", into)
	}
	if err := (handlers.Options{}).Decode(&into); err != nil {
		t.Errorf("no options: %v", err)
	}
}

func FuzzOptions(f *testing.F) {
	f.Add("url", "x", 1.5, uint8(3))
	f.Fuzz(func(t *testing.T, key, text string, n float64, shape uint8) {
		values := []any{text, n, nil, true, []any{text, n}, map[string]any{key: text}, map[any]any{n: text}, int64(n)}
		o := handlers.NewOptions(map[string]any{key: values[int(shape)%len(values)], "timeout": text,
			"headers": map[string]any{key: values[int(shape/8)%len(values)]}})
		s := &handlers.Setup{}
		for _, name := range []string{"log", "webhook", "publish"} { // exec would look at the file system
			if h, err := handlers.Default().Build(name, s, o); (h == nil) == (err == nil) {
				t.Fatalf("%s: handler %v, error %v", name, h != nil, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSetupClosesTheLatestFirst(t *testing.T) {
	var order []string
	s := &handlers.Setup{}
	s.OnClose(func() error { order = append(order, "first"); return errors.New("one") })
	s.OnClose(func() error { order = append(order, "second"); return errors.New("two") })
	err := s.Close()
	if strings.Join(order, " ") != "second first" || err == nil || !strings.Contains(err.Error(), "one") ||
		!strings.Contains(err.Error(), "two") {
		t.Errorf("order %v, error %v", order, err)
	}
	if err := s.Close(); err != nil || len(order) != 2 {
		t.Errorf("a second Close: %v, order %v", err, order)
	}
}

// The log handler shows length and digest, and, when asked, what the message brings, escaped.
func TestLog(t *testing.T) {
	m := message("orders\x1b[31m.new", "card 4111\x1b[2J\n<script>\xff")
	m.Key = []byte("customer-7\r\n")
	build := func(values map[string]any) string {
		var out bytes.Buffer
		log := zerolog.New(&out)
		h, err := handlers.Default().Build("log", &handlers.Setup{Logger: &log, Consumer: "c1"}, handlers.NewOptions(values))
		if err != nil {
			t.Fatal(err)
		}
		if err := h(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	plain := build(nil)
	for _, want := range []string{`"event":"message"`, `"consumer":"c1"`, `"partition":3`, `"offset":42`, `"attempt":1`,
		`"key_bytes":12`, `"bytes":23`, `"sha256":"`} {
		if !strings.Contains(plain, want) {
			t.Errorf("%s is not in %s", want, plain)
		}
	}
	for _, secret := range []string{"4111", "customer"} {
		if strings.Contains(plain, secret) {
			t.Errorf("%s is in %s", secret, plain)
		}
	}
	all := build(map[string]any{"payload": true, "key": true, "max_bytes": 20, "level": "warn"})
	for _, want := range []string{`"payload":"card 4111\u001b[2J\n<scrip"`, `"key":"customer-7\r\n"`, `"level":"warn"`} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is not in %s", want, all)
		}
	}
	for _, out := range []string{plain, all} {
		if strings.ContainsAny(strings.TrimSuffix(out, "\n"), "\x1b\n\r") {
			t.Errorf("raw control characters in %q", out)
		}
	}
	if out := build(map[string]any{"level": "debug"}); out == "" {
		t.Error("a logger that writes debug events got none")
	}
}

// A handler's own timeout stays below the consumer's: a default is lowered, another one is refused.
func TestTimeoutsBelowTheConsumers(t *testing.T) {
	options := map[string]map[string]any{"webhook": {"url": "https://h/"}, "exec": {"command": []any{"sh"}}}
	for name, o := range options {
		for _, c := range []struct {
			consumer time.Duration
			timeout  string
			ok       bool
		}{
			{0, "", true}, {0, "10h", true}, {5 * time.Second, "", true}, {5 * time.Second, "4s", true}, {5 * time.Second, "5s",
				false}, {time.Hour, "2h", false},
		} {
			if delete(o, "timeout"); c.timeout != "" {
				o["timeout"] = c.timeout
			}
			s := &handlers.Setup{Timeout: c.consumer}
			_, err := handlers.Default().Build(name, s, handlers.NewOptions(o))
			if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "not below the consumer's timeout, "+
				c.consumer.String()) {
				t.Errorf("%s with %q, the consumer's %v: %v", name, c.timeout, c.consumer, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// With a timeout of 200 ms the consumer would end the call by its own; the handler's default, 30 s otherwise, comes before.
func TestDefaultTimeoutIsBelowTheConsumers(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-ended }))
	defer server.Close()
	defer close(ended)
	s := &handlers.Setup{Timeout: 200 * time.Millisecond}
	defer s.Close()
	h, err := handlers.Default().Build("webhook", s, handlers.NewOptions(map[string]any{"url": server.URL}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := h(ctx, message("in", "x")); err == nil || ctx.Err() != nil {
		t.Errorf("%v, the context: %v", err, ctx.Err())
	}
}

// A fullDisk takes nothing while it is full.
type fullDisk struct {
	bytes.Buffer
	full bool
}

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.full {
		return 0, errDiskFull
	}
	return d.Buffer.Write(p)
}

var errDiskFull = errors.New("no space left on device")

// TestLogThatCannotWrite: a message whose event was not written is tried again, and not acked.
func TestLogThatCannotWrite(t *testing.T) {
	disk := &fullDisk{full: true}
	log := zerolog.New(disk)
	s := &handlers.Setup{Logger: &log, LogWriter: disk, Consumer: "c1"}
	h, err := handlers.Default().Build("log", s, handlers.NewOptions(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := h(t.Context(), message("orders", "a")); !errors.Is(err, errDiskFull) || consumer.IsPermanent(err) {
		t.Errorf("with the disk full it says %v", err)
	}
	disk.full = false
	if err := h(t.Context(), message("orders", "a")); err != nil || strings.Count(disk.String(), `"consumer":"c1"`) != 1 {
		t.Errorf("it says %v and wrote %q", err, disk.String())
	}
}

// A factory that asks for no options has none: what a file gives it is not passed over in silence.
func TestBuildRefusesOptionsThatNobodyReads(t *testing.T) {
	r := handlers.NewRegistry()
	factory := func(*handlers.Setup, handlers.Options) (consumer.Handler, error) {
		return func(context.Context, *consumer.Message) error { return nil }, nil
	}
	if err := r.Register("plain", factory); err != nil {
		t.Fatal(err)
	}
	_, err := r.Build("plain", nil, handlers.NewOptions(map[string]any{"width": 320, "height": 200}))
	var wrong handlers.OptionErrors
	if !errors.As(err, &wrong) || wrong.Error() != "height: unknown option; there is none; width: unknown option; there is none" {
		t.Errorf("options that nobody reads: %v", err)
	}
	for name, o := range map[string]handlers.Options{"none": {}, "empty": handlers.NewOptions(map[string]any{})} {
		if _, err := r.Build("plain", nil, o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A factory finds a logger in a Setup that has none, as in a test of its own.
func TestBuildGivesALogger(t *testing.T) {
	r := handlers.NewRegistry()
	if err := r.Register("says", func(s *handlers.Setup, _ handlers.Options) (consumer.Handler, error) {
		return func(context.Context, *consumer.Message) error { s.Logger.Info().Msg("handled"); return nil }, nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*handlers.Setup{nil, {}} {
		h, err := r.Build("says", s, handlers.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := h(t.Context(), &consumer.Message{}); err != nil {
			t.Error(err)
		}
	}
}
