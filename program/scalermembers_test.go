package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/internal/replicas"
)

// answering is a process that answers with a text; its address.
func answering(t *testing.T, code int, body string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/consumers/orders" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// TestMembers: who is there, and what is believed of it.
func TestMembers(t *testing.T) {
	t.Parallel()
	const good = `{"consumer":"orders","paused":true,"limits":{"min":1,"max":8},"runs":100,"run_seconds":2.5}`
	for name, c := range map[string]struct {
		at          string
		there, told int
	}{
		"a process":            {answering(t, 200, good), 1, 1},
		"of another consumer":  {answering(t, 404, "no such consumer"), 0, 0},
		"ill":                  {answering(t, 500, good), 1, 0},
		"something else":       {answering(t, 200, "<html>"), 1, 0},
		"an old one":           {answering(t, 200, `{"limits":{"max":0}}`), 1, 0},
		"absurd":               {answering(t, 200, `{"limits":{"max":8},"runs":1,"run_seconds":1e300}`), 1, 0},
		"negative":             {answering(t, 200, `{"limits":{"max":8},"runs":-1}`), 1, 0},
		"more than is read":    {answering(t, 200, `{"x":"`+strings.Repeat("x", mostOfReply)+`"}`), 1, 0},
		"elsewhere":            {answering(t, 302, ""), 1, 0},
		"not there":            {"127.0.0.1:" + freePort(t), 0, 0},
		"a name that is of no": {"nobody.invalid:80", 0, 0},
	} {
		v := newMemberView("orders", []string{c.at})
		v.client.Timeout = patience
		v.lookup = func(context.Context, string) ([]string, error) { return nil, &net.DNSError{IsNotFound: true} }
		m, err := v.read(t.Context())
		v.close()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if m == nil || m.There != c.there || len(m.Told) != c.told {
			t.Errorf("%s: %+v, want %d there, %d told", name, m, c.there, c.told)
		}
		if want := name == "of another consumer"; m != nil && (m.Without == 1) != want {
			t.Errorf("%s: %d do not have the consumer", name, m.Without)
		}
		if c.told == 1 && m != nil && len(m.Told) == 1 &&
			(m.Told[0].Workers != 8 || m.Told[0].Runs != 100 || m.Told[0].Work != 2500*time.Millisecond ||
				!m.Told[0].Paused) {
			t.Errorf("%s: %+v", name, m.Told[0])
		}
	}
}

// TestMemberThatChangesTheProtocol: where something else answers, and wants to speak another protocol from there on, the look
// comes to its end. It never did, nor did the scaler at a signal; whoever asked was told the number of before.
func TestMemberThatChangesTheProtocol(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(io.Discard, conn) // until the other side hangs up
	}))
	t.Cleanup(s.Close)
	v := newMemberView("orders", []string{s.Listener.Addr().String()})
	defer v.close()
	seen := make(chan *replicas.Members, 1)
	go func() {
		m, err := v.read(t.Context())
		if err != nil {
			t.Error(err)
		}
		seen <- m
	}()
	select {
	case m := <-seen:
		if m == nil || m.There != 1 || len(m.Told) != 0 {
			t.Errorf("%+v, want one that is there and tells nothing", m)
		}
	case <-time.After(patience):
		t.Error("the look does not end")
	}
}

// TestWhyMembersDoNotTell: the answer that keeps the number says what keeps a process from telling.
func TestWhyMembersDoNotTell(t *testing.T) {
	t.Parallel()
	at := answering(t, 503, "")
	target := fakeTargets("orders")["orders"]
	target.views = []workView{{read: func(context.Context) (sourceWork, error) {
		return sourceWork{parts: []replicas.Part{{Name: "in/0", Arrived: 96000, Backlog: 96000}}}, nil
	}}}
	target.members = newMemberView("orders", []string{at})
	target.members.client.Timeout = patience
	defer target.members.close()
	tracker := &replicas.Tracker{}
	for range 2 {
		r, err := target.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tracker.Add(r)
	}
	a := replicas.Need(tracker.Figures(), replicas.Settings{Drain: time.Minute})
	if a.Reason != replicas.Unmeasured || !strings.Contains(a.Why, at+" tells nothing: it answers 503") {
		t.Errorf("%+v", a)
	}
}

// TestMembersByName: a name stands for all of its addresses, each once; where it cannot be looked up, nobody knows how many
// there are, and that is an error.
func TestMembersByName(t *testing.T) {
	t.Parallel()
	v := newMemberView("orders", []string{"orders:80", "127.0.0.1:81", "[::1]:82"})
	v.lookup = func(_ context.Context, host string) ([]string, error) {
		return []string{"10.0.0.2", "10.0.0.1", "10.0.0.2"}, nil
	}
	all, err := v.addresses(t.Context())
	if want := []string{"10.0.0.1:80", "10.0.0.2:80", "127.0.0.1:81", "[::1]:82"}; err != nil || !slices.Equal(all, want) {
		t.Errorf("%v, %v, want %v", all, err, want)
	}
	v.lookup = func(context.Context, string) ([]string, error) { return nil, errors.New("the server does not answer") }
	if m, err := v.read(t.Context()); m != nil || err == nil {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestLookupThatFailsOnce: the processes are asked where they were, so that what they say still counts: here that a breaker is
// open, and more would only wait, too.
func TestLookupThatFailsOnce(t *testing.T) {
	t.Parallel()
	at := answering(t, 200, `{"limits":{"max":8},"runs":10,"run_seconds":1,"breakers":{"a":{"state":"open"}}}`)
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	target := fakeTargets("orders")["orders"]
	target.views = []workView{{read: func(context.Context) (sourceWork, error) {
		return sourceWork{parts: []replicas.Part{{Name: "in/0", Arrived: 96000, Backlog: 96000}}, most: 12}, nil
	}}}
	target.members = newMemberView("orders", []string{net.JoinHostPort("orders", port)})
	target.members.client.Timeout = patience
	defer target.members.close()
	silent := false
	target.members.lookup = func(ctx context.Context, _ string) ([]string, error) {
		if silent {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return []string{host}, nil
	}
	tracker := &replicas.Tracker{}
	for i := range 4 {
		silent = i == 3
		r, err := target.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tracker.Add(r)
	}
	a := replicas.Need(tracker.Figures(), replicas.Settings{PerReplica: 100, Drain: time.Minute})
	if a.Reason != replicas.Open || a.Replicas != 1 {
		t.Errorf("%+v, want 1: a breaker is open", a)
	}
	target.members.at = target.members.at.Add(-keepAddresses)
	target.members.lookup = func(context.Context, string) ([]string, error) { return nil, errors.New("server misbehaving") }
	r, err := target.look(t.Context())
	if err == nil {
		tracker.Add(r)
	}
	target.saw(tracker.Figures(), err)
	a, _, err = target.answer(t.Context(), perMinute)
	if err == nil || !strings.Contains(err.Error(), "looking up the processes at orders:"+port) {
		t.Errorf("%+v, %v: where they were a minute ago nobody needs to be, and a breaker may be open", a, err)
	}
}

// TestMemberThatIsSilentOnce: what it told a moment ago still counts, as that its breaker is open.
func TestMemberThatIsSilentOnce(t *testing.T) {
	t.Parallel()
	ill := false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if ill {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, `{"limits":{"max":8},"runs":10,"run_seconds":1,"breakers":{"a":{"state":"open"}}}`)
	}))
	t.Cleanup(s.Close)
	at := s.Listener.Addr().String()
	v := newMemberView("orders", []string{at})
	v.client.Timeout = patience
	defer v.close()
	read := func() *replicas.Members {
		m, err := v.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := read()
	ill = true
	if m := read(); len(m.Told) != 1 || !slices.Equal(m.Told, first.Told) || !m.Told[0].Open {
		t.Errorf("%+v, want %+v", m, first)
	}
	v.told[at] = word{v.told[at].process, time.Now().Add(-keepWords)}
	if m := read(); m.There != 1 || len(m.Told) != 0 {
		t.Errorf("it has told nothing for a minute, and %+v", m)
	}
}

// TestMemberWithABreaker: one that is not closed is told.
func TestMemberWithABreaker(t *testing.T) {
	t.Parallel()
	for breakers, open := range map[string]bool{`{}`: false, `{"a":{"state":"closed"}}`: false,
		`{"a":{"state":"closed"},"b":{"state":"half-open"}}`: true, `{"a":{"state":"open"}}`: true} {
		p, err := processOf("x", []byte(`{"limits":{"max":8},"breakers":`+breakers+`}`))
		if err != nil || p.Open != open {
			t.Errorf("%s: %+v, %v", breakers, p, err)
		}
	}
}

// TestMemberAtASharedLimit: it is told.
func TestMemberAtASharedLimit(t *testing.T) {
	t.Parallel()
	for _, limited := range []bool{true, false} {
		p, err := processOf("x", fmt.Appendf(nil, `{"limits":{"max":8},"at_shared_limit":%v}`, limited))
		if err != nil || p.Limited != limited {
			t.Errorf("%+v, %v, want %v", p, err, limited)
		}
	}
}

func FuzzProcess(f *testing.F) {
	f.Add([]byte(`{"limits":{"max":8},"runs":1,"run_seconds":2.5}`))
	f.Add([]byte(`{"limits":{"max":8},"breakers":{"a":{"state":"open","open_since":null}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := processOf("x", body)
		if err == nil && (p.Workers < 1 || p.Runs < 0 || p.Work < 0) {
			t.Errorf("%+v", p)
		}
	})
}
