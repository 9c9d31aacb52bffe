package middleware

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/longshoremq/longshore/broker"
)

const (
	// askAgain is for how long a part is used before the sources are asked again: often enough for a limit, seldom enough to cost
	// nothing for each call.
	askAgain = 10 * time.Millisecond
	// lookAtShare is after how long messages that wait for a shared limit look whether this process has a larger part by now.
	lookAtShare = time.Second
)

// A sharing tells which part of a limit this process has. The zero value has all of it. Not safe for concurrent use.
type sharing struct {
	sources []broker.Sharer
	share   broker.Share // of all sources together
	asked   time.Time
}

// shareBy is by what sources say. The error names each that can never tell.
func shareBy(sources []broker.Sharer) (sharing, error) {
	var errs []error
	if len(sources) == 0 {
		errs = append(errs, errors.New("no source"))
	}
	for _, s := range sources {
		if s == nil {
			errs = append(errs, errors.New("a source is nil"))
		} else if _, err := s.Share(); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return sharing{}, fmt.Errorf("middleware: sharing a limit: %w", err)
	}
	return sharing{sources: sources}, nil
}

// shared says whether the limit is one of several processes.
func (s *sharing) shared() bool { return len(s.sources) > 0 }

// at is the part at a time. Equal parts of several sources are added up: so are those of the other processes, and all of them are
// the whole.
func (s *sharing) at(now time.Time) broker.Share {
	switch {
	case !s.shared():
		return broker.Share{Held: 1, All: 1}
	case now.Sub(s.asked) < askAgain:
		return s.share
	}
	s.share, s.asked = broker.Share{}, now
	for _, source := range s.sources {
		share, _ := source.Share() // it did not fail when it was asked first, and then never does
		s.share.Held += share.Held
		s.share.All += share.All
	}
	return s.share
}

// portion is the part of so many calls, rounded down: one at least for who has any part at all.
func portion(calls int, share broker.Share) int {
	if share.Held <= 0 || share.All <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(calls), uint64(min(share.Held, share.All)))
	part, _ := bits.Div64(high, low, uint64(share.All)) // at most calls
	return max(1, int(part))
}
