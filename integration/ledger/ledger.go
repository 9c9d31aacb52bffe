// Package ledger keeps account of numbered messages: what was promised to their publisher, and what consumers wrote down as the
// last act of handling them. The file belongs to no consumer, so that none can take its entries with it when it is killed. Where
// messages have keys, it also keeps a clock for the begins and ends of their handling, and says whether the order of each key was
// kept.
package ledger

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Ledger is a file to which several processes append, one write per entry. Safe for concurrent use.
type Ledger struct{ f *os.File }

// Open opens or creates the ledger.
func Open(path string) (*Ledger, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	return &Ledger{f}, nil
}

// Write appends an entry: number id, stored at sequence seq, was handled by this process. Once it returned nil the entry outlives
// the process. One write to a file opened for appending does not mix with others'.
func (l *Ledger) Write(id, seq int64) error {
	line := make([]byte, 0, 64)
	line = strconv.AppendInt(line, id, 10)
	line = append(line, ' ')
	line = strconv.AppendInt(line, seq, 10)
	line = append(line, ' ')
	line = strconv.AppendInt(line, int64(os.Getpid()), 10)
	line = append(line, ' ')
	line = strconv.AppendInt(line, time.Now().UnixMilli(), 10)
	line = append(line, '\n')
	if _, err := l.f.Write(line); err != nil {
		return fmt.Errorf("writing to the ledger: %w", err)
	}
	return nil
}

// Close closes the file.
func (l *Ledger) Close() error { return l.f.Close() }

// An Entry is one handling.
type Entry struct {
	ID, Seq int64
	Pid     int
	At      int64 // in Unix milliseconds
}

// Read returns all whole entries. A last line without an end is being written, and is left out.
func Read(path string) ([]Entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	defer f.Close()
	var es []Entry
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadString('\n')
		if err == io.EOF {
			return es, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the ledger: %w", err)
		}
		e, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("ledger, entry %d: %w", len(es)+1, err)
		}
		es = append(es, e)
	}
}

func parse(line string) (e Entry, err error) {
	fields := strings.Fields(line)
	if len(fields) != 4 {
		return e, fmt.Errorf("%q has %d fields, want 4", line, len(fields))
	}
	if e.ID, err = strconv.ParseInt(fields[0], 10, 64); err != nil {
		return e, err
	}
	if e.Seq, err = strconv.ParseInt(fields[1], 10, 64); err != nil {
		return e, err
	}
	if e.Pid, err = strconv.Atoi(fields[2]); err != nil {
		return e, err
	}
	e.At, err = strconv.ParseInt(fields[3], 10, 64)
	return e, err
}

// A Broker knows what it will still hand out.
type Broker interface {
	// Has says whether what is stored at seq may still come.
	Has(seq int64) bool
}

// A Stream is what the broker says of a JetStream consumer.
type Stream struct {
	// Floor: everything up to this sequence is settled.
	Floor int64
	// Delivered is the highest sequence that was handed to a consumer.
	Delivered int64
	// Unsettled were delivered, and not settled.
	Unsettled int
}

// An Account is the comparison.
type Account struct {
	// Acked messages were confirmed to their publisher.
	Acked int `json:"acked"`
	// Handled of them are in the ledger, counted once.
	Handled int `json:"handled"`
	// Lost are acked and not in the ledger, and the broker does not have them for us any more.
	Lost int `json:"lost"`
	// Unseen are acked and not in the ledger, but the broker still has them: slow or stuck, no proof of loss.
	Unseen int `json:"unseen"`
	// Duplicates are entries beyond the first of the same stored message.
	Duplicates int `json:"duplicates"`
	// Republished were stored twice: the publisher's doing, not the consumers'.
	Republished int `json:"republished"`
	// Recovered were handled and never confirmed to their publisher: allowed.
	Recovered int `json:"recovered"`
	// Unexpected were handled and never sent.
	Unexpected int `json:"unexpected"`
	// LostIDs begins the list of those.
	LostIDs []int64 `json:"lost_ids,omitempty"`
}

// Settle compares. acked has the sequence of each confirmed number; numbers 0..sent-1 were sent.
func Settle(acked map[int64]int64, sent int64, entries []Entry, b Broker) Account {
	a := Account{Acked: len(acked)}
	bySeq, first := map[int64]bool{}, map[int64]int64{}
	for _, e := range entries {
		if bySeq[e.Seq] {
			a.Duplicates++
			continue
		}
		bySeq[e.Seq] = true
		switch _, confirmed := acked[e.ID]; {
		case e.ID < 0 || e.ID >= sent:
			a.Unexpected++
		case !confirmed:
			a.Recovered++
		}
		if _, again := first[e.ID]; again {
			a.Republished++
		} else {
			first[e.ID] = e.Seq
		}
	}
	for id, seq := range acked {
		if _, ok := first[id]; ok {
			a.Handled++
		} else if b.Has(seq) {
			a.Unseen++
		} else {
			a.Lost++
			a.LostIDs = append(a.LostIDs, id)
		}
	}
	slices.Sort(a.LostIDs)
	a.LostIDs = a.LostIDs[:min(len(a.LostIDs), 20)]
	return a
}

// Has says whether the broker may still hand out what is stored at seq. Between floor and delivered it cannot say which ones are
// unsettled, so any of them counts as there while some are.
func (s Stream) Has(seq int64) bool {
	return seq > s.Delivered || seq > s.Floor && s.Unsettled > 0
}

// Committed is the committed offset of each partition of a Kafka group.
type Committed map[int32]int64

// Has says whether the message stands at or behind its partition's committed offset.
func (c Committed) Has(seq int64) bool {
	partition, offset := Position(seq)
	return offset >= c[partition]
}

// Seq is one number for a place in a Kafka topic.
func Seq(partition int32, offset int64) int64 { return int64(partition)<<40 | offset }

// Position is what Seq was made of.
func Position(seq int64) (partition int32, offset int64) { return int32(seq >> 40), seq & (1<<40 - 1) }
