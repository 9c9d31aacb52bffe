package kafkabroker

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"testing"
)

// ourReaders are all that read a body, of an answer or of another member's.
var ourReaders = map[string]func(b []byte){
	"ApiVersions":      func(b []byte) { _, _ = readVersions(&reader{b: b}) },
	"Metadata 7":       func(b []byte) { _, _, _ = readTopics(&reader{b: b}, 7) },
	"Metadata 12":      func(b []byte) { _, _, _ = readTopics(&reader{b: b, flexible: true}, 12) },
	"FindCoordinator":  func(b []byte) { _, _ = readCoordinator(&reader{b: b}) },
	"JoinGroup":        func(b []byte) { _, _, _ = readJoined(&reader{b: b}) },
	"a subscription":   func(b []byte) { (&subscriber{}).read(b) },
	"an assignment":    func(b []byte) { _, _ = readAssignment(b) },
	"OffsetCommit":     func(b []byte) { _, _ = readCodes(&reader{b: b}) },
	"OffsetFetch":      func(b []byte) { _, _, _ = readPositions(&reader{b: b}) },
	"ListOffsets":      func(b []byte) { _, _ = readBounds(&reader{b: b}) },
	"DeleteRecords":    func(b []byte) { _ = readDeleted(&reader{b: b}, partitionID{"a", 0}) },
	"CreateTopics":     func(b []byte) { _ = readCreated(&reader{b: b}, "a") },
	"DeleteTopics":     func(b []byte) { _ = readErased(&reader{b: b}, "a") },
	"EndTxn":           func(b []byte) { _, _, _ = readEnd(&reader{b: b, flexible: true}, true) },
	"a transaction":    func(b []byte) { _, _, _ = readTxnDescribed(&reader{b: b, flexible: true}) },
	"agreed features":  func(b []byte) { _, _ = readFeatures(&reader{b: b, flexible: true}) },
	"SaslHandshake":    func(b []byte) { _, _ = readHandshake(&reader{b: b}) },
	"SaslAuthenticate": func(b []byte) { _, _, _ = readChallenge(&reader{b: b}, 1) },
	"Fetch 11":         func(b []byte) { _, _ = oneWish.read(&reader{b: b}, 11) },
	"Fetch 13":         func(b []byte) { _, _ = oneWish.read(&reader{b: b, flexible: true}, 13) },
	"a challenge":      func(b []byte) { _ = modest(b) },
}

var oneWish = fetchRequest{wishes: []wish{{partitionID: partitionID{"a", 0}}}}

// TestManyTopics: some thousand bytes of topics whose partitions have high numbers took 1.2 GB.
func TestManyTopics(t *testing.T) {
	w := writer{}
	w.i32(0)
	w.array(0)
	w.str("c")
	w.i32(1)
	const topics = 300
	w.array(topics)
	for i := range topics {
		w.i16(0)
		w.str(fmt.Sprint(i))
		w.bool(false)
		w.array(1)
		w.i16(0)
		w.i32(1 << 20)
		w.i32(1)
		w.i32(0)
		for range 3 {
			w.array(0)
		}
	}
	var err error
	if n := allocated(func() { _, _, err = readTopics(&reader{b: w.b}, 7) }); err == nil || n > 1<<20 {
		t.Errorf("%d bytes were allocated for an answer of %d, %v", n, len(w.b), err)
	}
}

// FuzzAnswers: whatever a broker or another member sends is an error or a value, and takes no more memory than it has bytes.
func FuzzAnswers(f *testing.F) {
	f.Add(subscription([]string{"a", "b"}, []partitionID{{"a", 1}, {"b", 0}}, 7))
	f.Add(assignment([]partitionID{{"a", 1}}))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 'a', 0, 0, 0, 1})
	f.Add(bytes.Repeat([]byte{0x7f, 0xff, 0xff, 0xff}, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, read := range ourReaders {
			if n, most := allocated(func() { read(b) }), uint64(64<<10+200*len(b)); n > most {
				t.Fatalf("%s: %d bytes of an answer of %d", name, n, len(b))
			}
		}
		var s subscriber
		s.read(b)
		if ps, err := readAssignment(b); err == nil && len(ps) > len(b) {
			t.Fatalf("%d partitions of %d bytes", len(ps), len(b))
		}
		for _, v := range []int16{7, 12} {
			if ts, _, err := readTopics(&reader{b: b, flexible: v >= 9}, v); err == nil && len(ts) > len(b) {
				t.Fatalf("%d topics of %d bytes", len(ts), len(b))
			}
		}
		req := fetchRequest{wishes: []wish{{partitionID: partitionID{"a", 0}}}}
		for _, v := range []int16{11, 13} {
			if got, err := req.read(&reader{b: b, flexible: v >= 12}, v); err == nil && len(got) > 1 {
				t.Fatalf("%d answers to one wish", len(got))
			}
		}
		if j, _, err := readJoined(&reader{b: b}); err == nil && len(j.subs) > len(b) {
			t.Fatalf("%d members of %d bytes", len(j.subs), len(b))
		}
		if codes, err := readCodes(&reader{b: b}); err == nil && len(codes) > len(b) {
			t.Fatalf("%d commits of %d bytes", len(codes), len(b))
		}
		if at, _, err := readPositions(&reader{b: b}); err == nil && len(at) > len(b) {
			t.Fatalf("%d positions of %d bytes", len(at), len(b))
		}
		if vs, err := readVersions(&reader{b: b}); err == nil && len(vs) > len(b) {
			t.Fatalf("%d versions of %d bytes", len(vs), len(b))
		}
		if _, err := readCoordinator(&reader{b: b}); err == nil && len(b) < 12 {
			t.Fatalf("a coordinator of %d bytes", len(b))
		}
		if at, err := readBounds(&reader{b: b}); err == nil && len(at) > len(b) {
			t.Fatalf("%d offsets of %d bytes", len(at), len(b))
		}
		if d, _, err := readDescribed(&reader{b: b}); err == nil && len(d.given)+d.members > len(b) {
			t.Fatalf("%d partitions given to %d members of %d bytes", len(d.given), d.members, len(b))
		}
		if a, err := readBeat(&reader{b: b, flexible: true}); err == nil && len(a.assigned) > len(b) {
			t.Fatalf("%d partitions assigned of %d bytes", len(a.assigned), len(b))
		}
		if at, _, err := readGroupPositions(&reader{b: b, flexible: true}); err == nil && len(at) > len(b) {
			t.Fatalf("%d positions of %d bytes", len(at), len(b))
		}
		if sp, _, err := readSpoken(&reader{b: b, flexible: true}); err == nil && sp.members > len(b) {
			t.Fatalf("%d members of %d bytes", sp.members, len(b))
		}
		if values, _, err := readSettings(&reader{b: b}); err == nil && len(values) > len(b) {
			t.Fatalf("%d settings of %d bytes", len(values), len(b))
		}
		if ends, err := readEpochEnds(&reader{b: b}); err == nil && len(ends) > len(b) {
			t.Fatalf("%d ends of epochs of %d bytes", len(ends), len(b))
		}
	})
}

// FuzzExchange: whatever comes instead of an answer is an error, or an answer of the length that it claims and the caller allows.
func FuzzExchange(f *testing.F) {
	f.Add([]byte{0, 0, 0, 6, 'l', 'o', 'n', 'g', 0, 7})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 'l', 'o', 'n', 'g'})
	f.Fuzz(func(t *testing.T, b []byte) {
		q := &request{ctx: t.Context(), key: keyHeartbeat, version: 3, limit: 1000}
		_, err := q.RawExchange(struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(b), io.Discard})
		if err == nil && (len(q.answer) > q.limit || !bytes.Equal(q.answer, b[8:8+len(q.answer)])) {
			t.Fatalf("the answer is %x", q.answer)
		}
		if len(q.answer) > q.limit {
			t.Fatalf("%d bytes were taken for an answer", len(q.answer))
		}
	})
}

func TestSubscription(t *testing.T) {
	var s subscriber
	s.read(subscription([]string{"a", "b"}, []partitionID{{"a", 1}, {"b", 0}, {"b", 4}}, 7))
	want := subscriber{topics: []string{"a", "b"}, owned: []partitionID{{"a", 1}, {"b", 0}, {"b", 4}}, generation: 7}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got %+v, want %+v", s, want)
	}
	var short subscriber // kafka-go's: version 1, and no owned partitions
	short.read([]byte{0, 1, 0, 0, 0, 1, 0, 1, 'a', 0xff, 0xff, 0xff, 0xff})
	if want := (subscriber{topics: []string{"a"}, generation: -1}); !reflect.DeepEqual(short, want) {
		t.Errorf("got %+v, want %+v", short, want)
	}
}
