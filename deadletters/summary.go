package deadletters

import (
	"slices"

	"github.com/longshoremq/longshore/broker"
)

// A Refusal is a letter that was not replayed, and why.
type Refusal struct {
	broker.Place
	Err error
}

// A Summary is what a replay did. The lists have at most 1,000 entries.
type Summary struct {
	// Run names the replay.
	Run string
	// Chosen letters were to be replayed: the filter takes them, and they were not replayed before, which counts as Before.
	Chosen, Before int64
	// Replayed were confirmed, or handled. With DryRun, those that would be replayed.
	Replayed int64
	// Refused were not replayed for a reason that stays; Failed were handled in vain.
	Refused, Failed int64
	Refusals        []Refusal
	// Found were on their way when an earlier replay was stopped, and are in their topic: they were not published again.
	Found []broker.Place
	// Absent were on their way then, too, and are not there: they count as waiting again.
	Absent []broker.Place
	// PerhapsTwice are in their topic perhaps twice, or were handled perhaps twice.
	PerhapsTwice []broker.Place
	// LostEdits are those of Absent whose edited copy was never published: edit them again, the letter itself is unchanged.
	LostEdits []broker.Place
	// Unreadable are records of the journal that were passed over.
	Unreadable Unreadable
	// Stopped: ctx ended. The next replay goes on here.
	Stopped bool
}

// maxList bounds the lists of a summary.
const maxList = 1000

func (s *Summary) refuse(p broker.Place, err error) {
	if len(s.Refusals) < maxList {
		s.Refusals = append(s.Refusals, Refusal{p, err})
	}
}

func (s *Summary) twice(p broker.Place) {
	if len(s.PerhapsTwice) < maxList && !slices.Contains(s.PerhapsTwice, p) {
		s.PerhapsTwice = append(s.PerhapsTwice, p)
	}
}
