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

// places unpacks them.
func (s spans) places() (ps []broker.Place, err error) {
	for no, list := range s {
		partition, err := strconv.ParseInt(no, 10, 32)
		if err != nil || partition < -1 {
			return nil, fmt.Errorf("partition %q", no)
		}
		for _, span := range list {
			if span[0] < 0 || span[1] <= span[0] || span[1]-span[0] > maxSpan-int64(len(ps)) {
				return nil, fmt.Errorf("offsets %d to %d", span[0], span[1])
			}
			for o := span[0]; o < span[1]; o++ {
				ps = append(ps, broker.Place{Partition: int32(partition), Offset: o})
			}
		}
	}
	slices.SortFunc(ps, comparePlaces)
	return ps, nil
}

// decodeRecord reads a line of the journal.
func decodeRecord(b []byte) (r record, err error) {
	if err := json.Unmarshal(b, &r); err != nil {
		return r, err
	}
	switch {
	case r.Version > recordVersion:
		return r, fmt.Errorf("it has format %d, from a newer longshore: this one reads %d", r.Version, recordVersion)
	case r.Version < 1 || r.Run == "" || r.At.IsZero():
		return r, errors.New("it is no record of a replay")
	}
	for _, letters := range []map[string]spans{r.Letters, r.Twice} {
		n := 0
		for to, s := range letters {
			ps, err := s.places()
			if n += len(ps); err != nil || to == "" {
				return r, fmt.Errorf("it has letters to %q with %w", to, cmp.Or(err, errors.New("no name")))
			}
			if n > maxSpan {
				return r, fmt.Errorf("it has more than %d letters", maxSpan)
			}
		}
	}
	return r, nil
}

// A mark is what the journal says of a letter.
type mark struct {
	to   string
	done *record // its latest confirmed replay
	open *record // a replay that was begun and neither confirmed nor undone
	// twice: it was perhaps published twice.
	twice bool
}

// marks are all that the journal says of one log of dead letters.
type marks struct {
	log string
	by  map[broker.Place]mark
	run string // the replay that began last
	// again are replays with Again that did not get to their end, and those that went on with them: what they have replayed is not replayed again.
	again map[string]bool
}

func newMarks(log string) *marks {
	return &marks{log: log, by: map[broker.Place]mark{}, again: map[string]bool{}}
}

// add takes the next record of the journal in. Records come in the order in which they were stored; one may come twice.
func (m *marks) add(r record) {
	if r.Step == stepRun {
		m.run = r.Run
	}
	if r.Log != m.log { // of a topic that was deleted and made again
		return
	}
	switch {
	case r.Step == stepRun && r.Again:
		m.again[r.Run] = true
	case r.Step == stepEnd:
		clear(m.again)
	}
	for to, s := range r.Letters {
		places, _ := s.places() // was checked
		for _, p := range places {
			was := m.by[p]
			ours := was.open != nil && was.open.Run == cmp.Or(r.Of, r.Run)
			switch {
			case r.Step == stepBegin:
				was.twice = was.twice || was.open != nil && was.open.Run != r.Run // begun again though nobody knows what became of it
				was.to, was.open = to, &r
			case r.Step == stepDone && ours:
				was.to, was.done, was.open = to, &r, nil
			case r.Step == stepDone: // another replay has begun it meanwhile
				was.done = &r
			case r.Step == stepUndone && ours:
				was.open = nil
			}
			m.by[p] = was
		}
	}
	for _, s := range r.Twice {
		places, _ := s.places()
		for _, p := range places {
			was := m.by[p]
			was.twice = true
			m.by[p] = was
		}
	}
}

// tell writes what is known of a letter into it.
func (m *marks) tell(l *Letter) {
	k := m.by[l.Place]
	r := k.open
	switch {
	case k.open != nil:
		l.State = Uncertain
	case k.done != nil:
		l.State, r = Replayed, k.done
	default:
		l.State = Waiting
		return
	}
	l.ReplayedAt, l.ReplayedTo, l.Edited, l.PerhapsTwice = r.At, k.to, r.Edited, k.twice
}

// uncertain are the letters of which it is not known whether they were published, sorted.
func (m *marks) uncertain() (ps []broker.Place) {
	for p, k := range m.by {
		if k.open != nil {
			ps = append(ps, p)
		}
	}
	slices.SortFunc(ps, comparePlaces)
	return ps
}
