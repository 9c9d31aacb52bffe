package kafkabroker

import (
	"reflect"
	"testing"
)

// FuzzAnswers: whatever a broker or another member sends is an error or a value, and takes no more memory than it has bytes.
func FuzzAnswers(f *testing.F) {
	f.Add(subscription([]string{"a", "b"}, []partitionID{{"a", 1}, {"b", 0}}, 7))
	f.Add(assignment([]partitionID{{"a", 1}}))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 'a', 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s subscriber
		s.read(b)
		if ps, err := readAssignment(b); err == nil && len(ps) > len(b) {
			t.Fatalf("%d partitions of %d bytes", len(ps), len(b))
		}
		for _, v := range []int16{7, 12} {
			if ts, err := readTopics(&reader{b: b, flexible: v >= 9}, v); err == nil && len(ts) > len(b) {
				t.Fatalf("%d topics of %d bytes", len(ts), len(b))
			}
		}
		req := fetchRequest{wishes: []wish{{partitionID: partitionID{"a", 0}}}}
		for _, v := range []int16{11, 13} {
			if got, err := req.read(&reader{b: b, flexible: v >= 12}, v); err == nil && len(got) > 1 {
				t.Fatalf("%d answers to one wish", len(got))
			}
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
