package brokertest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// stories are what became of each message, for those of which a case complains.
type stories struct {
	began time.Time

	mu sync.Mutex
	of map[string][]string
}

// tell adds to the stories of messages.
func (s *stories) tell(ms []*broker.Message, format string, args ...any) {
	line := stampedLine(s.began, format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range ms {
		s.of[id(m)] = append(s.of[id(m)], line)
	}
}

// text is what became of the first few messages.
func (s *stories) text(ids []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, id := range ids[:min(len(ids), 3)] {
		fmt.Fprintf(&b, "\n%s: %s", id, strings.Join(s.of[id], "; "))
	}
	return b.String()
}

// stampedLine is a line that begins with when it was, in the case's time.
func stampedLine(began time.Time, format string, args ...any) string {
	return fmt.Sprintf("%v ", time.Since(began).Round(100*time.Microsecond)) + fmt.Sprintf(format, args...)
}
