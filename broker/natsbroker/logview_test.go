package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

func newLogView(url string) (*natsbroker.LogView, error) {
	return natsbroker.NewLogView(natsbroker.LogViewConfig{Connection: natsbroker.Connection{URLs: []string{url}}})
}

func logView(t *testing.T, ts *testServer) *natsbroker.LogView {
	t.Helper()
	v, err := newLogView(ts.url())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

func scanned(t *testing.T, v *natsbroker.LogView, s broker.Scan) (all []broker.Message, done broker.Scanned) {
	t.Helper()
	done, err := v.Scan(t.Context(), s, func(m *broker.Message) error { all = append(all, *m); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return all, done
}

func offsets(ms []broker.Message) string {
	var list []string
	for _, m := range ms {
		list = append(list, fmt.Sprint(m.Offset))
	}
	return strings.Join(list, " ")
}

// A scan reads one subject of a stream, whichever its retention is, and leaves no consumer.
func TestLogViewScan(t *testing.T) {
	ts := startServer(t)
	a := ts.admin()
	for _, retention := range []jetstream.RetentionPolicy{jetstream.LimitsPolicy, jetstream.WorkQueuePolicy} {
		name := "R" + retention.String()
		st, err := a.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"},
			Retention: retention, AllowDirect: true})
		if err != nil {
			t.Fatal(err)
		}
		var half time.Time
		for i := range 10 {
			m := &nats.Msg{Subject: name + ".a", Data: fmt.Append(nil, i), Header: nats.Header{broker.HeaderKey: {"k"}, "Status": {"404"}}}
			if i == 9 {
				m.Data = nil // with its header this looks like the server's own answer
			}
			for _, m := range []*nats.Msg{m, {Subject: name + ".b", Data: m.Data}} {
				if _, err := a.js.PublishMsg(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			if i == 4 {
				raw, err := st.GetMsg(t.Context(), 10)
				if err != nil {
					t.Fatal(err)
				}
				half = raw.Time.Add(1)
			}
		}
		v := logView(t, ts)
		all, done := scanned(t, v, broker.Scan{Topic: name + ".a"})
		if got := offsets(all); got != "1 3 5 7 9 11 13 15 17 19" {
			t.Errorf("%s: sequences %s", name, got)
		}
		if m := all[3]; string(m.Value) != "3" || string(m.Key) != "k" || m.Partition != -1 || m.Topic != name+".a" ||
			time.Since(m.Time()) > time.Minute {
			t.Errorf("%+v", m)
		}
		if done.Whole != (retention == jetstream.LimitsPolicy) || done.Log == "" {
			t.Errorf("%s: %+v", name, done)
		}
		later, done2 := scanned(t, v, broker.Scan{Topic: name + ".a", Since: half})
		if got := offsets(later); got != "11 13 15 17 19" || done2.Log != done.Log {
			t.Errorf("%s: since the half: %s", name, got)
		}
		if all, _ = scanned(t, v, broker.Scan{Topic: name + ".a", Offset: 16}); offsets(all) != "17 19" {
			t.Errorf("%s: from 16: %s", name, offsets(all))
		}
		if all, _ = scanned(t, v, broker.Scan{Topic: name + ".a", Since: time.Now().Add(time.Hour)}); len(all) != 0 {
			t.Errorf("%s: from the future: %s", name, offsets(all))
		}
		info, err := st.Info(t.Context())
		if err != nil || info.State.Consumers != 0 {
			t.Errorf("%s: %+v %v", name, info, err)
		}
		n := 0
		if _, err := v.Scan(t.Context(), broker.Scan{Topic: name + ".a"},
			func(*broker.Message) error { n++; return broker.ErrStopScan }); err != nil || n != 1 {
			t.Errorf("%s: %d %v", name, n, err)
		}
		places := []broker.Place{{Partition: -1, Offset: 3}, {Partition: -1, Offset: 5}, {Partition: -1, Offset: 3}}
		if err := v.Remove(t.Context(), name+".a", places); err != nil {
			t.Error(err)
		}
		if all, done = scanned(t, v, broker.Scan{Topic: name + ".a"}); offsets(all) != "1 7 9 11 13 15 17 19" || done.Whole {
			t.Errorf("%s: after removing: %s %+v", name, offsets(all), done)
		}
	}
}

// What is removed while a scan is under way was perhaps there: the scan did not see all. Of a stream that was made anew meanwhile
// it names the new one.
func TestLogViewScansWhatChanges(t *testing.T) {
	ts := startServer(t)
	js := ts.admin().js
	cfg := jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}
	for _, how := range []string{"cut off", "made anew"} {
		_ = js.DeleteStream(t.Context(), "S")
		st, err := js.CreateStream(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			if _, err := js.Publish(t.Context(), "s", nil); err != nil {
				t.Fatal(err)
			}
		}
		v := logView(t, ts)
		_, before := scanned(t, v, broker.Scan{Topic: "s"})
		done, err := v.Scan(t.Context(), broker.Scan{Topic: "s"}, func(m *broker.Message) error {
			switch {
			case m.Offset != 1:
				return nil
			case how == "cut off":
				return st.Purge(t.Context(), jetstream.WithPurgeSequence(50))
			}
			if err := js.DeleteStream(t.Context(), "S"); err != nil {
				return err
			}
			_, err := js.CreateStream(t.Context(), cfg)
			return err
		})
		if err != nil || !before.Whole || done.Whole || (done.Log == before.Log) != (how == "cut off") {
			t.Errorf("%s: %+v, then %+v %v", how, before, done, err)
		}
	}
}

// A stream may store what is published under another subject. A scan for the one that it is published to says so: what it does
// not find is there all the same, and letters would be none, and a journal of replays forgotten.
func TestLogViewScansWhatIsTransformed(t *testing.T) {
	ts := startServer(t)
	a := ts.admin()
	if _, err := a.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "T", Subjects: []string{"orders.*"},
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "orders.*", Destination: "stored.{{wildcard(1)}}"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.js.Publish(t.Context(), "orders.eu", []byte("1")); err != nil {
		t.Fatal(err)
	}
	v := logView(t, ts)
	done, err := v.Scan(t.Context(), broker.Scan{Topic: "orders.eu"}, func(*broker.Message) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "stream T stores what is published to it under another subject") || done.Whole {
		t.Errorf("%v, and it is %+v", err, done)
	}
	if _, err := a.js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: "T", Subjects: []string{"orders.*", "dead"},
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "orders.*", Destination: "stored.{{wildcard(1)}}"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.js.Publish(t.Context(), "dead", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if all, _ := scanned(t, v, broker.Scan{Topic: "dead"}); len(all) != 1 {
		t.Errorf("%d of a subject that it leaves as it is", len(all))
	}
}

// The page has one view for all who look at the letters of a consumer. They come at once, before it is connected.
func TestLogViewConnectsOnce(t *testing.T) {
	ts := startServer(t)
	if _, err := ts.admin().js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "D", Subjects: []string{"dead"}}); err != nil {
		t.Fatal(err)
	}
	before := ts.srv.NumClients()
	v, err := newLogView(ts.url())
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := v.Scan(t.Context(), broker.Scan{Topic: "dead"}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := ts.srv.NumClients() - before; n != 1 {
		t.Errorf("it has %d connections", n)
	}
	v.Close()
	eventually(t, "no connection is left", func() bool { return ts.srv.NumClients() == before })
}

func TestLogViewCreatesLogs(t *testing.T) {
	ts := startServer(t)
	a := ts.admin()
	if _, err := a.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.*"},
		Storage: jetstream.MemoryStorage, MaxAge: time.Hour}); err != nil {
		t.Fatal(err)
	}
	v := logView(t, ts)
	if _, err := v.Scan(t.Context(), broker.Scan{Topic: "replays.dead.orders"}, nil); !errors.Is(err, broker.ErrNoTopic) {
		t.Errorf("no stream: %v", err)
	}
	for range 2 {
		if err := v.CreateLog(t.Context(), "replays.dead.orders", "dead.orders"); err != nil {
			t.Fatal(err)
		}
	}
	st, err := a.js.Stream(t.Context(), "replays_dead_orders")
	if err != nil {
		t.Fatal(err)
	}
	if c := st.CachedInfo().Config; c.Storage != jetstream.MemoryStorage || c.MaxAge != 0 || c.Retention != jetstream.LimitsPolicy {
		t.Errorf("%+v", c)
	}
	if _, err := v.Scan(t.Context(), broker.Scan{Topic: "dead.>"}, nil); err == nil {
		t.Error("wildcards are taken")
	}
	if err := v.Remove(t.Context(), "nothing", []broker.Place{{Partition: -1, Offset: 1}}); !errors.Is(err, broker.ErrNoTopic) {
		t.Error(err)
	}
}

// The server is away: it says which, and ends with ctx.
func TestLogViewIsAway(t *testing.T) {
	t.Parallel()
	if _, err := newLogView("http://x"); err == nil {
		t.Error("a wrong URL is taken")
	}
	v, err := newLogView(fmt.Sprintf("nats://user:hunter2@127.0.0.1:%d", freePort(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := v.Scan(ctx, broker.Scan{Topic: "a"}, nil); err == nil || !strings.Contains(err.Error(), "127.0.0.1") ||
		strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}
