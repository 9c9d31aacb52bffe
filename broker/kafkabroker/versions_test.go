package kafkabroker

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/dialer"
)

// noVersions is an answer to ApiVersions that is well formed and has no requests.
func noVersions(f []byte) []byte { return sized(f[4:8], make([]byte, 6)) }

// without is one that lists all requests but one.
func without(key int16) func(f []byte) []byte {
	return func(f []byte) []byte {
		rest := f[14:]
		for at := 0; at+6 <= len(rest); at += 6 {
			if int16(binary.BigEndian.Uint16(rest[at:])) == key {
				rest = slices.Delete(slices.Clone(rest), at, at+6)
				break
			}
		}
		body := binary.BigEndian.AppendUint32(slices.Clone(f[8:10]), uint32(len(rest)/6))
		return sized(f[4:8], append(body, rest...))
	}
}

// TestDamagedVersions: an answer to ApiVersions that was damaged on its way is no word of a broker that is too old, which would
// end the source. It is asked for again.
func TestDamagedVersions(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]func([]byte) []byte{
		"nothing":          noVersions,
		"no ApiVersions":   without(keyAPIVersions),
		"no Metadata":      without(keyMetadata),
		"no JoinGroup":     without(keyJoinGroup),
		"no Heartbeat":     without(keyHeartbeat),
		"no OffsetFetch":   without(keyOffsetFetch),
		"no Fetch":         without(keyFetch),
		"no OffsetCommit":  without(keyOffsetCommit),
		"no ListOffsets":   without(keyListOffsets),
		"a negative count": func(f []byte) []byte { return sized(f[4:8], []byte{0, 0, 0xff, 0xff, 0xff, 0xff}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := newTestSystem(t, 1, 1)
			s := &spoiler{key: keyAPIVersions}
			l := ts.net.link()
			ts.dials = func(dial dialer.Func) dialer.Func { return s.over(dial) }
			s.ways = slices.Repeat([]func([]byte) []byte{way, func(f []byte) []byte { return f }}, 2) // of who asks one after the other
			want := ts.put(t, ts.topics[0], 0, 5)
			r := startRunner(t, ts.config(l))
			eventually(t, "all messages came", func() bool { return r.has(want) })
			s.again(way) // and when connections and versions are lost
			l.reset()
			want = ts.put(t, ts.topics[0], 5, 5)
			eventually(t, "all messages came", func() bool { return r.has(want) })
			eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
		})
	}
}

// TestLeavesOldBrokers: a member leaves a group of Kafka 2.3, too, so that nobody waits for the end of its session.
func TestLeavesOldBrokers(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string]*kversion.Versions{"2.3": kversion.V2_3_0(), "2.4": kversion.V2_4_0()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := startFake(t, ofOne, "sticky", kfake.MaxVersions(versions))
			want := ts.put(t, ts.topics[0], 0, 5)
			r := startRunner(t, ts.config(ts.net.link()))
			eventually(t, "all messages came", func() bool { return r.has(want) })
			r.close()
			if g := ts.cluster.GroupInfo(ts.group); g == nil || len(g.Members) > 0 {
				t.Errorf("it is a member still: %+v", g)
			}
		})
	}
}

// TestMadeAgainOnOldBrokers: Kafka 2.8 and 3.0 know ids of topics, and fetch by names. A topic is made anew, and has grown past
// the old position before anything of it is fetched: all of it comes.
func TestMadeAgainOnOldBrokers(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string]*kversion.Versions{"2.8": kversion.V2_8_0(), "3.0": kversion.V3_0_0()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := startFake(t, ofOne, "sticky", kfake.MaxVersions(versions))
			cfg := ts.config(ts.net.link())
			cfg.Poll = time.Hour
			r := startRunner(t, cfg)
			old := ts.put(t, ts.topics[0], 0, 9)
			eventually(t, "the old messages came", func() bool { return r.has(old) })
			if err := r.s.Pause(); err != nil {
				t.Fatal(err)
			}
			ts.recreate(t, ts.topics[0])
			want := ts.put(t, ts.topics[0], 9, 18)
			before := r.s.atlas.looks()
			eventually(t, "it looks at the topics", func() bool {
				signal(r.s.bells.find)
				return r.s.atlas.looks() >= before+2
			})
			if err := r.s.Resume(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "all of the new topic came", func() bool { return r.has(want) })
			r.told(t, broker.Gap, errRecreated.Error())
		})
	}
}

// TestNamesTheVersion: where a broker does not speak a request, the error names the version of Kafka that does. Not all of them
// are as old as what a source needs.
func TestNamesTheVersion(t *testing.T) {
	old := map[int16][2]int16{keyAPIVersions: {0, 2}}
	for key, want := range map[int16]string{
		keyFetch: "2.3", keyCreateTopics: "2.4", keyEndTxn: "2.5", keyDescribeTransactions: "3.0", keyConsumerGroupHeartbeat: "4.0",
	} {
		_, err := choose(old, key, 1)
		if !errors.Is(err, errVersion) || !strings.Contains(err.Error(), "Kafka "+want+" or newer") {
			t.Errorf("%s: %v, want that Kafka %s is needed", requestName(key), err, want)
		}
	}
}

// TestTooOld: a broker that says twice that it does not speak a request is too old.
func TestTooOld(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	s := &spoiler{key: keyAPIVersions, ways: slices.Repeat([]func([]byte) []byte{without(keyJoinGroup)}, 100)}
	ts.dials = func(dial dialer.Func) dialer.Func { return s.over(dial) }
	src, err := NewSource(ts.config(ts.net.link()))
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		_, err := src.Open(t.Context(), broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}, Observe: func(broker.Event) {}})
		opened <- err
	}()
	select {
	case err := <-opened:
		if !errors.Is(err, errVersion) {
			t.Errorf("Open: %v", err)
		}
	case <-time.After(patience):
		t.Error("Open still waits")
	}
	_ = src.Close(t.Context())
}
