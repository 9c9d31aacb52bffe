package kafkabroker

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// TestManyPartitions: what is assigned together is looked up together. 1,000 partitions were 1,000 of each request at once, and
// as many connections: more than a process may have open.
func TestManyPartitions(t *testing.T) {
	onEachProtocol(t, 1000, testManyPartitions)
}

func testManyPartitions(t *testing.T, ts *testSystem) {
	const mostConnections = 20
	mostCommits := int64(ts.parts / 10) // who starts goes into the next commit: on a slow machine that is of fewer
	ts.lease = 10 * time.Second         // a member that is late would be asked to begin again
	for _, tc := range []struct {
		when  string
		lists int64 // ListOffsets requests
	}{{"first", 1}, {"again", 0}} {
		l := ts.net.link()
		before := ts.net.sent(keyOffsetFetch)
		lists, commits := ts.net.sent(keyListOffsets), ts.net.sent(keyOffsetCommit)
		cfg := ts.config(l)
		cfg.plan, cfg.Topics, cfg.RequestTimeout = nil, ts.topics[:1], patience
		cfg.Poll = time.Hour // it asks for ends, too, that no fetch has told yet
		s, err := NewSource(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var assigned atomic.Int64
		_, err = s.Open(t.Context(), broker.Options{Budget: broker.Budget{Messages: 100, Bytes: 8 << 20},
			Observe: func(e broker.Event) {
				if e.Kind == broker.Assigned {
					assigned.Add(1)
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "all partitions have begun", func() bool { return assigned.Load() == int64(ts.parts) })
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("%s: Close: %v", tc.when, err)
		}
		if n := ts.net.sent(keyOffsetFetch) - before; n != 1 {
			t.Errorf("%s: %d OffsetFetch requests, want 1", tc.when, n)
		}
		if n := ts.net.sent(keyListOffsets) - lists; n != tc.lists {
			t.Errorf("%s: %d ListOffsets requests, want %d", tc.when, n, tc.lists)
		}
		if n := ts.net.sent(keyOffsetCommit) - commits; n > mostCommits {
			t.Errorf("%s: %d OffsetCommit requests, want at most %d", tc.when, n, mostCommits)
		}
		if n := l.most(); n > mostConnections {
			t.Errorf("%s: %d connections, want at most %d", tc.when, n, mostConnections)
		}
	}
}
