package kafkabroker

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

// TestAnswerFitsItsRoom: an answer that brings all the bytes it was asked for, of many partitions, is read into what was set aside
// for it. It was a little longer, and so allocated again and copied: an eighth of the CPU at 1,000 partitions.
func TestAnswerFitsItsRoom(t *testing.T) {
	for _, version := range []int16{11, 13} {
		for _, parts := range []int{1, 1000} {
			t.Run(fmt.Sprintf("version %d, %d partitions", version, parts), func(t *testing.T) {
				f := fetchRequest{bytes: 4 << 20, maxWait: time.Second}
				w := writer{flexible: version >= 12}
				w.i32(0)
				w.i16(0)
				w.i32(0)
				w.array(1)
				if version >= 13 {
					w.id(topicID{1})
				} else {
					w.str("orders")
				}
				w.array(parts)
				for no := range int32(parts) {
					f.wishes = append(f.wishes, wish{partitionID: partitionID{"orders", no}, id: topicID{1}})
					w.i32(no)
					w.i16(0)
					w.i64(1000)
					w.i64(1000)
					w.i64(0)
					w.array(0) // aborted
					w.i32(-1)
					w.bytes(make([]byte, int(f.bytes)/parts))
					w.tags()
				}
				w.tags()
				w.tags()
				var answer []byte
				n := testing.AllocsPerRun(5, func() {
					var err error
					if answer, err = readClaimed(bytes.NewReader(w.b), len(w.b), f.room()); err != nil {
						t.Fatal(err)
					}
				})
				if n > 2 { // the answer, and its reader
					t.Errorf("%v allocations for an answer of %d bytes, with room for %d", n, len(w.b), f.room())
				}
				got, err := f.read(&reader{b: answer, flexible: w.flexible}, version)
				if err != nil || len(got) != parts {
					t.Errorf("%d partitions are read, %v", len(got), err)
				}
			})
		}
	}
}
