package deadletters

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

var moment = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func at(partition int32, offsets ...int64) (ps []broker.Place) {
	for _, o := range offsets {
		ps = append(ps, broker.Place{Partition: partition, Offset: o})
	}
	return ps
}

func TestParsePlace(t *testing.T) {
	for s, want := range map[string]broker.Place{"0/17": {Partition: 0, Offset: 17}, "17": {Partition: -1, Offset: 17},
		"12/0": {Partition: 12}} {
		if p, err := ParsePlace(s); err != nil || p != want || FormatPlace(p) != s {
			t.Errorf("%s: %+v %v", s, p, err)
		}
	}
	for _, s := range []string{"", "/", "1/", "/1", "-1/2", "1/-2", "x", "1/2/3", "+1", "01", " 1", "+1/2", "01/2",
		"99999999999999999999", "4294967296/1"} {
		if p, err := ParsePlace(s); err == nil || !strings.Contains(err.Error(), "want partition/offset") {
			t.Errorf("%q: %+v %v", s, p, err)
		}
	}
}

func TestFilter(t *testing.T) {
	l := &Letter{Place: broker.Place{Offset: 7}, Message: &broker.Message{Key: []byte("k")}, Handler: "orders", Class: "timeout",
		OriginalTopic: "in", LastFailure: moment, State: Waiting}
	for name, c := range map[string]struct {
		f    Filter
		want bool
	}{
		"all":             {Filter{}, true},
		"handler":         {Filter{Handler: "orders"}, true},
		"another handler": {Filter{Handler: "o"}, false},
		"class":           {Filter{Class: "timeout", Handler: "orders"}, true},
		"another class":   {Filter{Class: "error", Handler: "orders"}, false},
		"origin":          {Filter{Topic: "in"}, true},
		"another origin":  {Filter{Topic: "out"}, false},
		"since then":      {Filter{Since: moment}, true},
		"since later":     {Filter{Since: moment.Add(1)}, false},
		"until then":      {Filter{Until: moment}, false},
		"until later":     {Filter{Until: moment.Add(1)}, true},
		"key":             {Filter{Key: []byte("k")}, true},
		"another key":     {Filter{Key: []byte("K")}, false},
		"the empty key":   {Filter{Key: []byte{}}, false},
		"state":           {Filter{State: Waiting}, true},
		"another state":   {Filter{State: Replayed}, false},
		"place":           {Filter{Places: at(0, 1, 7)}, true},
		"another place":   {Filter{Places: append(at(1, 7), at(0, 8)...)}, false},
	} {
		if got := c.f.Match(l); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if (Filter{Key: []byte{}}).Match(&Letter{Message: &broker.Message{}}) {
		t.Error("no key is taken for the empty one")
	}
}

// Headers of a letter are whatever somebody wrote.
func TestReadLetter(t *testing.T) {
	h := func(pairs ...string) broker.Headers {
		var hs []broker.Header
		for i := 0; i < len(pairs); i += 2 {
			hs = append(hs, broker.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
		return broker.NewHeaders(hs...)
	}
	l := readLetter(&broker.Message{Nanos: moment.UnixNano(), Headers: h(
		broker.HeaderOriginalPartition, "-3", broker.HeaderOriginalOffset, "x", broker.HeaderAttempts, "99999999999",
		broker.HeaderLastFailure, "yesterday",
		broker.HeaderReplays, "-1", broker.HeaderHistory, "a", broker.HeaderHistory, "b", "__connect.errors.topic", "connected")})
	if l.OriginalPartition != -1 || l.OriginalOffset != -1 || l.Attempts != 0 || !l.At().Equal(moment) || l.Replays != 2 ||
		l.OriginalTopic != "connected" || l.State != Waiting {
		t.Errorf("%+v", l)
	}
	if l = readLetter(&broker.Message{Headers: h("kafka_dlt-original-topic", "spring", broker.HeaderOriginalTopic,
		"ours")}); l.OriginalTopic != "ours" {
		t.Errorf("%+v", l)
	}
}

func TestDestination(t *testing.T) {
	orders := Replay{Allow: fromOrders}
	all := Replay{Allow: func(string) bool { return true }}
	for name, c := range map[string]struct {
		l    Letter
		o    Replay
		to   string
		fail error
	}{
		"where it came from":       {Letter{OriginalTopic: "orders"}, orders, "orders", nil},
		"not allowed":              {Letter{OriginalTopic: "payroll"}, orders, "", ErrForeign},
		"told where to":            {Letter{OriginalTopic: "payroll"}, Replay{Allow: fromOrders, To: "repair"}, "repair", nil},
		"told, and forged":         {Letter{OriginalTopic: "$JS.API.STREAM.DELETE.VICTIM"}, Replay{To: "repair"}, "repair", nil},
		"a command of NATS":        {Letter{OriginalTopic: "$JS.API.STREAM.DELETE.VICTIM"}, all, "", broker.ErrReserved},
		"an answer of NATS":        {Letter{OriginalTopic: "_INBOX.x"}, all, "", broker.ErrReserved},
		"Kafka's own":              {Letter{OriginalTopic: "__consumer_offsets"}, all, "", broker.ErrReserved},
		"from nowhere":             {Letter{}, all, "", ErrNoOrigin},
		"from nowhere, told":       {Letter{}, Replay{To: "repair"}, "repair", nil},
		"into itself":              {Letter{OriginalTopic: "dead"}, all, "", ErrCircle},
		"into the journal":         {Letter{OriginalTopic: JournalTopic("dead")}, all, "", ErrCircle},
		"once less than the limit": {Letter{OriginalTopic: "orders", Replays: 4}, orders, "orders", nil},
		"as often as the limit":    {Letter{OriginalTopic: "orders", Replays: 5}, orders, "", ErrReplays},
	} {
		c.o.MaxReplays = 5
		to, err := destination(&c.l, "dead", c.o)
		if to != c.to || !errors.Is(err, c.fail) || (err != nil) != (c.fail != nil) {
			t.Errorf("%s: %q %v", name, to, err)
		}
	}
}

func TestSpans(t *testing.T) {
	ps := append(at(1, 5, 3, 4, 4, 9), at(-1, 2)...)
	s := spansOf(ps)
	if got := fmt.Sprint(s); got != "map[-1:[[2 3]] 1:[[3 6] [9 10]]]" {
		t.Error(got)
	}
	if n, err := s.count(); err != nil || n != 5 {
		t.Errorf("%d %v", n, err)
	}
	var back []broker.Place
	s.each(func(partition int32, from, to int64) {
		for o := from; o < to; o++ {
			back = append(back, broker.Place{Partition: partition, Offset: o})
		}
	})
	slices.SortFunc(back, comparePlaces)
	if want := append(at(-1, 2), at(1, 3, 4, 5, 9)...); !slices.Equal(back, want) {
		t.Error(back)
	}
}

// What the journal says, record by record.
func TestMarks(t *testing.T) {
	rec := func(step, run string, more ...func(*record)) record {
		r := record{Version: 1, Step: step, Run: run, At: moment, Log: "L", Letters: map[string]spans{"orders": spansOf(at(0, 1, 2))}}
		for _, f := range more {
			f(&r)
		}
		return r
	}
	of := func(run string) func(*record) { return func(r *record) { r.Of = run } }
	again := func(r *record) { r.Suffix = r.Run }
	for name, c := range map[string]struct {
		records []record
		state   State // of letter 1
		twice   bool
	}{
		"nothing":                      {nil, Waiting, false},
		"begun":                        {[]record{rec(stepBegin, "a")}, Uncertain, false},
		"begun, and that stored twice": {[]record{rec(stepBegin, "a"), rec(stepBegin, "a")}, Uncertain, false},
		"done":                         {[]record{rec(stepBegin, "a"), rec(stepDone, "a")}, Replayed, false},
		"undone":                       {[]record{rec(stepBegin, "a"), rec(stepUndone, "a")}, Waiting, false},
		"found by another": {[]record{rec(stepBegin, "a"), rec(stepRun, "b"), rec(stepDone, "b", of("a"))},
			Replayed, false},
		"absent for another": {[]record{rec(stepBegin, "a"), rec(stepRun, "b"), rec(stepUndone, "b", of("a"))},
			Waiting, false},
		"begun again by another": {[]record{rec(stepBegin, "a"), rec(stepBegin, "b"), rec(stepDone, "b")}, Replayed,
			true},
		"late done of the first": {[]record{rec(stepBegin, "a"), rec(stepBegin, "b"), rec(stepDone, "a")}, Uncertain,
			true},
		"late undone of the first": {[]record{rec(stepBegin, "a"), rec(stepBegin, "b"), rec(stepUndone, "a")}, Uncertain,
			true},
		"late undone after done": {[]record{rec(stepBegin, "b"), rec(stepDone, "b"), rec(stepUndone, "a")}, Replayed,
			false},
		"absent for another, and done after all": {[]record{rec(stepBegin, "a"), rec(stepUndone, "b", of("a")), rec(stepBegin, "b"),
			rec(stepDone, "b"), rec(stepDone, "a")}, Replayed, true},
		"the same, and the other is on its way": {[]record{rec(stepBegin, "a"), rec(stepUndone, "b", of("a")), rec(stepBegin, "b"),
			rec(stepDone, "a"), rec(stepDone, "b")}, Replayed, true},
		"the same, and the other begins": {[]record{rec(stepBegin, "a"), rec(stepUndone, "b", of("a")), rec(stepDone, "a"),
			rec(stepBegin, "b"), rec(stepDone, "b")}, Replayed, true},
		"absent for another, and done": {[]record{rec(stepBegin, "a"), rec(stepUndone, "b", of("a")), rec(stepDone, "a")},
			Replayed, false},
		"found by another, and done": {[]record{rec(stepBegin, "a"), rec(stepDone, "b", of("a")), rec(stepDone, "a")},
			Replayed, false},
		"done, and that stored twice": {[]record{rec(stepBegin, "a"), rec(stepDone, "a"), rec(stepDone, "a")}, Replayed, false},
		"again": {[]record{rec(stepBegin, "a"), rec(stepDone, "a"), rec(stepBegin, "b", again), rec(stepDone, "b", again)},
			Replayed, false},
		"again, and undone: the first one was": {[]record{rec(stepBegin, "a"), rec(stepDone, "a"), rec(stepBegin, "b", again),
			rec(stepUndone, "b", again)}, Replayed, false},
		"again, and killed": {[]record{rec(stepBegin, "a"), rec(stepDone, "a"), rec(stepBegin, "b", again)}, Uncertain,
			false},
		"of another log": {[]record{rec(stepBegin, "a", func(r *record) { r.Log = "M" })}, Waiting, false},
		"tried twice": {[]record{rec(stepBegin, "a"), rec(stepDone, "a",
			func(r *record) { r.Twice = map[string]spans{"orders": spansOf(at(0, 1))} })},
			Replayed, true},
	} {
		m := newMarks("L")
		for _, r := range c.records {
			if err := m.add(r); err != nil {
				t.Fatal(err)
			}
		}
		l := &Letter{Place: broker.Place{Offset: 1}, Message: &broker.Message{}}
		if m.tell(l); l.State != c.state || l.PerhapsTwice != c.twice {
			t.Errorf("%s: %s, perhaps twice: %v", name, l.State, l.PerhapsTwice)
		}
		other := &Letter{Place: broker.Place{Offset: 3}, Message: &broker.Message{}}
		if m.tell(other); other.State != Waiting {
			t.Errorf("%s: another letter is %s", name, other.State)
		}
	}
}

// Where a letter was replayed to is where it was, whatever was begun since and came to nothing.
func TestMarksOfTwoTopics(t *testing.T) {
	rec := func(step, run, to string) record {
		return record{Version: 1, Step: step, Run: run, At: moment, Log: "L", Letters: map[string]spans{to: spansOf(at(0, 1))}}
	}
	first := []record{rec(stepBegin, "a", "orders"), rec(stepDone, "a", "orders")}
	for name, c := range map[string]struct {
		records []record
		to      string
	}{
		"refused elsewhere": {append(first[:2:2], rec(stepBegin, "b", "other"), rec(stepUndone, "b", "other")), "orders"},
		"on its way":        {append(first[:2:2], rec(stepBegin, "b", "other")), "other"},
		"replayed there":    {append(first[:2:2], rec(stepBegin, "b", "other"), rec(stepDone, "b", "other")), "other"},
		"late": {append(first[:1:1], rec(stepBegin, "b", "other"), rec(stepDone, "a", "orders"), rec(stepUndone, "b", "other")),
			"orders"},
		"its begin is gone": {first[1:], "orders"},
	} {
		m := newMarks("L")
		for _, r := range c.records {
			if err := m.add(r); err != nil {
				t.Fatal(err)
			}
		}
		l := &Letter{Place: broker.Place{Offset: 1}, Message: &broker.Message{}}
		if m.tell(l); l.ReplayedTo != c.to {
			t.Errorf("%s: %s to %q, want %q", name, l.State, l.ReplayedTo, c.to)
		}
	}
}

func TestPlanner(t *testing.T) {
	letters := []*Letter{
		{Place: broker.Place{Partition: 0, Offset: 3}, State: Replayed}, {Place: broker.Place{Partition: 0, Offset: 5}, State: Waiting},
		{Place: broker.Place{Partition: 0, Offset: 6}, State: Replayed}, {Place: broker.Place{Partition: 1, Offset: 1},
			State: Replayed},
	}
	for _, single := range []bool{true, false} {
		p := planner{single: single, stays: map[int32]bool{}}
		for _, l := range letters {
			p.add(l, l.State == Replayed)
		}
		got := p.plan
		if got.Letters != 3 || got.Waiting != 0 {
			t.Errorf("single %v: %+v", single, got)
		}
		if single && (len(got.Places) != 3 || got.Behind != 0 || got.trim != nil) {
			t.Errorf("one by one: %+v", got)
		}
		if !single && (len(got.Places) != 2 || got.Behind != 1 || got.First != letters[2].Place ||
			!maps.Equal(got.trim, map[int32]int64{0: 4, 1: 2})) {
			t.Errorf("from the beginning: %+v", got)
		}
	}
	p := planner{stays: map[int32]bool{0: true}} // what stays anyhow is not counted among those that would be lost
	if p.add(letters[1], true); p.plan.Waiting != 0 || p.plan.Letters != 1 {
		t.Errorf("one that cannot be deleted: %+v", p.plan)
	}
}

// Whatever is in the journal, or in a letter's headers, is read without a panic, and within bounds.
func FuzzRecord(f *testing.F) {
	good, _ := json.Marshal(record{Version: 1, Step: stepBegin, Run: "r", At: moment,
		Letters: map[string]spans{"orders": spansOf(at(0, 1, 2, 7))}})
	f.Add(good)
	f.Add([]byte(`{"v":1,"run":"a","at":"2026-11-21T12:00:00Z","letters":{"x":{"0":[[0,9223372036854775807]]}}}`))
	f.Add([]byte(`{"v":1,"run":"a","at":"2026-11-21T12:00:00Z","letters":{"x":{"0":[[0,1048576],[1048576,2097152]]}}}`))
	f.Add([]byte(`{"v":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		m := newMarks(r.Log)
		if err := m.add(r); err != nil {
			t.Fatal(err)
		}
		if m.n > 2*len(b)+3*maxSpan/bucketSize {
			t.Errorf("%d stretches of %d bytes", m.n, len(b))
		}
	})
}

// FuzzMarks holds the stretches against a mark for each letter.
func FuzzMarks(f *testing.F) {
	f.Add([]byte{0, 0, 0, 9, 1, 1, 2, 3, 2, 0, 0, 4, 3, 1, 1, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, model := newMarks("L"), map[broker.Place]mark{}
		for ; len(b) >= 4; b = b[4:] {
			r := record{Version: 1, Step: []string{stepBegin, stepDone, stepUndone}[b[0]%3], Run: string('a' + b[1]%3), At: moment,
				Log: "L"}
			from := int64(b[2]) * 9 // some are in the next bucket
			r.Letters = map[string]spans{"x": {"0": [][2]int64{{from, from + 1 + int64(b[3])}}}}
			if err := m.add(r); err != nil {
				t.Fatal(err)
			}
			now := &stroke{run: r.Run, of: r.Run, to: "x", at: r.At}
			for o := from; o <= from+int64(b[3]); o++ {
				p := broker.Place{Offset: o}
				model[p] = model[p].next(r.Step, now)
			}
		}
		for o := range int64(256 * 10) {
			have, want := m.of(broker.Place{Offset: o}), model[broker.Place{Offset: o}]
			if !sameStroke(have.open, want.open) || !sameStroke(have.done, want.done) || have.twice != want.twice {
				t.Fatalf("letter %d: %+v, want %+v", o, have, want)
			}
		}
		for b, list := range m.by {
			for i, s := range list {
				if s.from >= s.to || s.from/bucketSize != b.no || (s.to-1)/bucketSize != b.no || i > 0 && list[i-1].to > s.from {
					t.Fatalf("bucket %+v: %+v", b, list)
				}
			}
		}
	})
}

func sameStroke(a, b *stroke) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

func FuzzPlace(f *testing.F) {
	f.Add("0/17")
	f.Add("17")
	f.Add("-1/+2")
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := ParsePlace(s); err == nil && (FormatPlace(p) != s || p.Offset < 0) {
			t.Errorf("%q is read as %s", s, FormatPlace(p))
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	_, err := New(Config{ConfirmTimeout: -1, Settle: -1})
	for _, want := range []string{"Topic is required", "Store is required", "ConfirmTimeout is", "Settle is"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not said: %v", want, err)
		}
	}
	err = Replay{Rate: -1, Limit: -1, MaxReplays: -1, Workers: -1, Batch: -1, To: "dead"}.withDefaults().validate("dead")
	for _, want := range []string{"Rate is", "Limit is", "MaxReplays is", "Workers is", "Batch is", "To is \"dead\""} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not said: %v", want, err)
		}
	}
	for to, want := range map[string]string{"": "Allow is required", "$JS.API.STREAM.DELETE.VICTIM": "begins with $"} {
		if err := (Replay{To: to}).withDefaults().validate("dead"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("to %q: %v", to, err)
		}
	}
}
