package deadletters

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// The steps of a replay that the journal has.
const (
	stepRun    = "run"    // a replay begins; one that began before it stops
	stepBegin  = "begin"  // these letters are about to be published
	stepDone   = "done"   // they are confirmed
	stepUndone = "undone" // they were surely not published
	stepEnd    = "end"    // a replay with Again has replayed all
)

// recordVersion is that of the format.
const recordVersion = 1

// A record is a line of the journal.
type record struct {
	Version int       `json:"v"`
	Step    string    `json:"step"`
	Run     string    `json:"run"`
	At      time.Time `json:"at"`
	// Log is the dead letters' log (broker.Scanned): places of another one say nothing.
	Log string `json:"log,omitempty"`
	// Letters are by where they go: a topic, or with Handled a handler.
	Letters map[string]spans `json:"letters,omitempty"`
	Handled bool             `json:"handled,omitempty"`
	Edited  bool             `json:"edited,omitempty"`
	// Again, of a run: it replays what was replayed already.
	Again bool `json:"again,omitempty"`
	// Named, of a run with Again and of its end: it is of letters that were named.
	Named bool `json:"named,omitempty"`
	// By, of a run: who replays, as Replay.By says.
	By string `json:"by,omitempty"`
	// Suffix ends the ids of the messages.
	Suffix string `json:"suffix,omitempty"`
	// Of is the run that began the letters, where this one found out what became of them.
	Of string `json:"of,omitempty"`
	// Twice are those of the letters that were perhaps stored twice by this run: their publish was tried again.
	Twice map[string]spans `json:"twice,omitempty"`
}

// spans are places: by partition, as [from, to) of offsets, sorted and disjoint.
type spans map[string][][2]int64

// spansOf packs places.
func spansOf(places []broker.Place) spans {
	places = slices.Clone(places)
	slices.SortFunc(places, comparePlaces)
	s := spans{}
	for _, p := range places {
		no := strconv.Itoa(int(p.Partition))
		list := s[no]
		switch n := len(list); {
		case n > 0 && list[n-1][1] == p.Offset:
			list[n-1][1]++
		case n > 0 && list[n-1][1] > p.Offset: // twice
		default:
			s[no] = append(list, [2]int64{p.Offset, p.Offset + 1})
		}
	}
	return s
}

func comparePlaces(a, b broker.Place) int {
	return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}

// maxSpan is how many letters one record can have, and so a batch.
const maxSpan = 1 << 16

// count is how many they are, or what is wrong with them.
func (s spans) count() (n int64, err error) {
	for no, list := range s {
		if partition, err := strconv.ParseInt(no, 10, 32); err != nil || partition < -1 {
			return 0, fmt.Errorf("partition %q", no)
		}
		for _, span := range list {
			if span[0] < 0 || span[1] <= span[0] || span[1]-span[0] > maxSpan-n {
				return 0, fmt.Errorf("offsets %d to %d", span[0], span[1])
			}
			n += span[1] - span[0]
		}
	}
	return n, nil
}

// each calls f for every stretch. They were counted.
func (s spans) each(f func(partition int32, from, to int64)) {
	for no, list := range s {
		partition, _ := strconv.ParseInt(no, 10, 32)
		for _, span := range list {
			f(int32(partition), span[0], span[1])
		}
	}
}

const (
	// maxRecordBytes is more than a record of maxSpan letters has, each of them a stretch of its own.
	maxRecordBytes = 8 << 20
	// maxName is more than the names in a record have.
	maxName = 4 << 10
)

// errNewer is of a record that cannot be read, and that must not be passed over.
var errNewer = errors.New("it is from a newer longshore")

// decodeRecord reads a line of the journal. It may be anything: whoever may publish to the journal can write one.
func decodeRecord(b []byte) (r record, err error) {
	if len(b) > maxRecordBytes {
		return r, fmt.Errorf("it has %d bytes, want at most %d", len(b), maxRecordBytes)
	}
	err = json.Unmarshal(b, &r) // what has another type there does not keep it from reading the version
	switch {
	case r.Version > recordVersion && r.Run != "" && !r.At.IsZero():
		return r, fmt.Errorf("%w: it has format %d, and this one reads %d", errNewer, r.Version, recordVersion)
	case err != nil:
		return r, err
	case r.Version > recordVersion || r.Version < 1 || r.Run == "" || r.At.IsZero():
		return r, errors.New("it is no record of a replay")
	case max(len(r.Run), len(r.Of), len(r.Log), len(r.Suffix), len(r.By)) > maxName:
		return r, fmt.Errorf("it has a name of more than %d bytes", maxName)
	}
	for _, letters := range []map[string]spans{r.Letters, r.Twice} {
		n := int64(0)
		for to, s := range letters {
			more, err := s.count()
			if n += more; err != nil || to == "" || len(to) > maxName {
				return r, fmt.Errorf("it has letters to %q with %w", to, cmp.Or(err, errors.New("no name, or too long a one")))
			}
			if n > maxSpan {
				return r, fmt.Errorf("it has more than %d letters", maxSpan)
			}
		}
	}
	return r, nil
}
