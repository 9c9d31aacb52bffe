package handlers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/rs/zerolog"
)

// buildBatch makes a ready-made batch handler.
func buildBatch(t *testing.T, name string, with map[string]any) consumer.BatchHandler {
	t.Helper()
	s := &handlers.Setup{}
	t.Cleanup(func() { _ = s.Close() })
	h, err := handlers.Default().BuildBatch(name, s, handlers.NewOptions(with))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// verdicts is what became of each message of a batch: "acked", "retry", "permanent".
func verdicts(h consumer.BatchHandler, values ...string) (all []string) {
	ms := make([]*consumer.Message, len(values))
	for i, v := range values {
		ms[i] = message("orders", v)
	}
	err := h(context.Background(), ms)
	var each *consumer.BatchError
	for i := range ms {
		one := err
		if errors.As(err, &each) {
			one = each.Errs[i]
		}
		switch {
		case one == nil:
			all = append(all, "acked")
		case consumer.IsPermanent(one):
			all = append(all, "permanent")
		default:
			all = append(all, "retry")
		}
	}
	return all
}

// TestWebhookBatch: a server gets all that is known about each message, and what is no JSON is kept from it.
func TestWebhookBatch(t *testing.T) {
	var body []byte
	var kind string
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		kind = r.Header.Get("Content-Type")
	})
	h := buildBatch(t, "webhook", map[string]any{"url": s.URL, "forward_headers": []any{"traceparent"}})
	first, tombstone, bad := message("orders", "{\n\"n\": 1}"), message("orders", ""), message("orders", "no JSON")
	first.Key, first.Headers = []byte("ü"), broker.NewHeaders(broker.Header{Key: "traceparent", Value: []byte("00-1")})
	tombstone.Value, tombstone.Attempt = nil, 3
	err := h(t.Context(), []*consumer.Message{first, bad, tombstone})
	var each *consumer.BatchError
	if !errors.As(err, &each) || each.Errs[0] != nil || each.Errs[2] != nil || !consumer.IsPermanent(each.Errs[1]) ||
		strings.Contains(each.Errs[1].Error(), "no JSON:") {
		t.Errorf("outcomes: %v", err)
	}
	want := `[{"id":"orders/3/42//1700000000000000001","topic":"orders","partition":3,"offset":42,"key":"%C3%BC","attempt":1,` +
		`"headers":{"traceparent":"00-1"},"value":{"n":1}},` +
		`{"id":"orders/3/42//1700000000000000001","topic":"orders","partition":3,"offset":42,"attempt":3,"value":null}]`
	if string(body) != want || kind != "application/json" {
		t.Errorf("%s:\n%s\nwant\n%s", kind, body, want)
	}
}

// TestWebhookBatchNamesWhatItOmits: a header that cannot stand in the array, or is too long, is left out, and named.
func TestWebhookBatchNamesWhatItOmits(t *testing.T) {
	type element struct {
		Headers map[string]string
		Omitted []string
	}
	var got []element
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
	})
	h := buildBatch(t, "webhook", map[string]any{"url": s.URL, "forward_headers": []any{"bad", "Long", "fits", "missing"}})
	m := message("orders", "1")
	m.Headers = broker.NewHeaders(broker.Header{Key: "bad", Value: []byte("a\xff")},
		broker.Header{Key: "Long", Value: bytes.Repeat([]byte("x"), 4097)},
		broker.Header{Key: "fits", Value: bytes.Repeat([]byte("y"), 4096)})
	if err := h(t.Context(), []*consumer.Message{m, message("orders", "2")}); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || len(got[0].Headers) != 2 || len(got[0].Headers["fits"]) != 4096 || len(got[0].Headers["Long"]) != 4097 ||
		!slices.Equal(got[0].Omitted, []string{"bad"}) || got[1].Omitted != nil {
		t.Errorf("sent %.300v", got)
	}
}

// TestWebhookBatchEncodings: payloads stand in the array as the option says, or not at all.
func TestWebhookBatchEncodings(t *testing.T) {
	for encoding, want := range map[string]string{"text": `"{\"n\": 1}" permanent`, "base64": `"eyJuIjogMX0=" acked`,
		"json": `{"n":1} permanent`} {
		var seen []string
		s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			var list []struct{ Value json.RawMessage }
			_ = json.NewDecoder(r.Body).Decode(&list)
			seen = append(seen, string(list[0].Value))
		})
		h := buildBatch(t, "webhook", map[string]any{"url": s.URL, "encoding": encoding})
		if got := verdicts(h, `{"n": 1}`, "\xff"); len(seen) != 1 || seen[0]+" "+got[1] != want {
			t.Errorf("%s: %q %q, want %s", encoding, seen, got, want)
		}
	}
	for name, with := range map[string]map[string]any{
		"batch":   {"url": "http://127.0.0.1:1", "encoding": "xml"},
		"handler": {"url": "http://127.0.0.1:1", "encoding": "json"},
	} {
		var err error
		if name == "batch" {
			_, err = handlers.Default().BuildBatch("webhook", nil, handlers.NewOptions(with))
		} else {
			_, err = handlers.Default().Build("webhook", nil, handlers.NewOptions(with))
		}
		var list handlers.OptionErrors
		if !errors.As(err, &list) || len(list) != 1 || list[0].Path != "encoding" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBatchFindsTheOneThatIsMeant: a refusal that no retry cures is followed down to the message; any other outcome is for all.
func TestBatchFindsTheOneThatIsMeant(t *testing.T) {
	var mu sync.Mutex
	requests, status := 0, http.StatusBadRequest
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		requests++
		if strings.Contains(string(body), "bad") {
			w.WriteHeader(status)
		}
	})
	h := buildBatch(t, "webhook", map[string]any{"url": s.URL})
	values := make([]string, 100)
	want := make([]string, 100)
	for i := range values {
		values[i], want[i] = "1", "acked"
	}
	values[37], want[37] = `"bad"`, "permanent"
	if got := verdicts(h, values...); !slices.Equal(got, want) {
		t.Errorf("outcomes %q", got)
	}
	if requests > 1+2*7 {
		t.Errorf("%d requests for one bad message among 100", requests)
	}
	requests, status = 0, http.StatusServiceUnavailable
	if got := verdicts(h, values...); slices.Contains(got, "acked") || slices.Contains(got, "permanent") || requests != 1 {
		t.Errorf("503: %d requests, outcomes %q", requests, got)
	}
}

// TestExecBatch: a command gets a line for each message.
func TestExecBatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "seen")
	script := `cat > "$OUT".in; if grep -q bad "$OUT".in; then exit 65; fi; echo "$LONGSHORE_BATCH:" >> "$OUT"; cat "$OUT".in >> ` +
		`"$OUT"`
	h := buildBatch(t, "exec", map[string]any{"command": []any{"sh", "-c", script}, "env": map[string]any{"OUT": file}})
	got := verdicts(h, "one", "{\n \"n\": 2\n}", "three\nlines", "bad", "")
	if !slices.Equal(got, []string{"acked", "acked", "permanent", "permanent", "acked"}) {
		t.Errorf("outcomes %q", got)
	}
	text, err := os.ReadFile(file)
	if err != nil || string(text) != "2:\none\n{\"n\":2}\n1:\n\n" {
		t.Errorf("the command saw %q (%v)", text, err)
	}
}

// TestLogBatch: an event for each message.
func TestLogBatch(t *testing.T) {
	var out strings.Builder
	log := zerolog.New(&out)
	h, err := handlers.Default().BuildBatch("log", &handlers.Setup{Logger: &log, Consumer: "c"},
		handlers.NewOptions(map[string]any{"payload": true}))
	if err != nil {
		t.Fatal(err)
	}
	if got := verdicts(h, "one", "two"); !slices.Equal(got, []string{"acked", "acked"}) {
		t.Errorf("outcomes %q", got)
	}
	if text := out.String(); strings.Count(text, `"batch":2`) != 2 || !strings.Contains(text, `"payload":"two"`) ||
		strings.Count(text, `"consumer":"c"`) != 2 {
		t.Error(text)
	}
}

// TestOne: a batch handler as one for single messages says of a message what it says of the batch, or of its only member.
func TestOne(t *testing.T) {
	boom := errors.New("boom")
	for _, err := range []error{nil, boom, &consumer.BatchError{Errs: []error{boom}}} {
		got := handlers.One(func(_ context.Context, ms []*consumer.Message) error {
			if len(ms) != 1 {
				t.Errorf("%d messages", len(ms))
			}
			return err
		})(t.Context(), message("orders", ""))
		if err == nil && got != nil || err != nil && got != boom {
			t.Errorf("%v became %v", err, got)
		}
	}
	// Of which message it speaks is not known, as in a consumer.
	for _, errs := range [][]error{{consumer.Skip("old"), consumer.Skip("old")}, {nil, consumer.Permanent(boom)}, {}} {
		got := handlers.One(func(context.Context, []*consumer.Message) error { return &consumer.BatchError{Errs: errs} })(t.Context(),
			message("orders", ""))
		if got == nil || consumer.IsSkip(got) || consumer.IsPermanent(got) {
			t.Errorf("%d entries became %v", len(errs), got)
		}
	}
}

// TestRegistryKinds: each kind has names of its own.
func TestRegistryKinds(t *testing.T) {
	r := handlers.NewRegistry()
	batch := func(*handlers.Setup, handlers.Options) (consumer.BatchHandler, error) {
		return func(context.Context, []*consumer.Message) error { return nil }, nil
	}
	wrap := func(*handlers.Setup, handlers.Options) (consumer.Middleware, error) { return nil, nil }
	for range 2 {
		err := errors.Join(r.RegisterBatch("x", batch), r.RegisterMiddleware("x", wrap), r.RegisterCodec("x", handlers.JSONCodec{}))
		if err != nil && strings.Count(err.Error(), "is registered already") != 3 {
			t.Error(err)
		}
	}
	if !slices.Equal(r.BatchNames(), []string{"x"}) || !slices.Equal(r.MiddlewareNames(), []string{"x"}) ||
		!slices.Equal(r.CodecNames(), []string{"x"}) || len(r.Names()) != 0 {
		t.Error(r.BatchNames(), r.MiddlewareNames(), r.CodecNames(), r.Names())
	}
	if _, err := r.BuildBatch("x", nil, handlers.Options{}); err != nil {
		t.Error(err)
	}
	if _, err := r.BuildMiddleware("x", nil, handlers.Options{}); err == nil ||
		!strings.Contains(err.Error(), `middleware "x": its factory returned none`) {
		t.Error(err)
	}
	_, err := r.Codec("y")
	if !errors.Is(err, handlers.ErrUnknown) || !strings.Contains(err.Error(), `codec "y"; known: x`) {
		t.Error(err)
	}
	for _, err := range []error{r.RegisterBatch("", batch), r.RegisterMiddleware("X", wrap), r.RegisterCodec("n", nil)} {
		if err == nil {
			t.Error("it was taken")
		}
	}
}

// TestBatchRefusedTooLate: where a batch's time is over when a server refuses it, nobody can ask any more which message it means,
// and none of them is given up. The connection is free again after the answer's headers have come, and before what they say is
// looked at.
func TestBatchRefusedTooLate(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, "one of them is wrong")
	})
	h := buildBatch(t, "webhook", map[string]any{"url": s.URL})
	ctx, end := context.WithCancelCause(t.Context())
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{PutIdleConn: func(error) { end(consumer.ErrTimeout) }})
	err := h(ctx, []*consumer.Message{message("orders", "1"), message("orders", "2")})
	var each *consumer.BatchError
	if !errors.As(err, &each) {
		t.Fatal(err)
	}
	for i, err := range each.Errs {
		if consumer.IsPermanent(err) || !errors.Is(err, consumer.ErrTimeout) || !strings.Contains(err.Error(), "422") {
			t.Errorf("message %d: %v", i, err)
		}
	}
}

// TestLogBatchThatCannotWrite: those of a batch whose events were not written are tried again, and no others.
func TestLogBatchThatCannotWrite(t *testing.T) {
	disk := &fullDisk{}
	log := zerolog.New(disk)
	s := &handlers.Setup{Logger: &log, LogWriter: writerFunc(func(p []byte) (int, error) {
		disk.full = bytes.Contains(p, []byte("two"))
		return disk.Write(p)
	})}
	h, err := handlers.Default().BuildBatch("log", s, handlers.NewOptions(map[string]any{"payload": true}))
	if err != nil {
		t.Fatal(err)
	}
	if got := verdicts(h, "one", "two", "three"); !slices.Equal(got, []string{"acked", "retry", "acked"}) {
		t.Errorf("outcomes %q", got)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
