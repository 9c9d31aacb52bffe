package kafkabroker

import (
	"errors"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// TestOpenBesideStop: a policy that ends Receive may do so before Open has returned. Open has opened then: it is Receive that
// tells the reason, once.
func TestOpenBesideStop(t *testing.T) {
	stop := errors.New("ended by the policy stop")
	for name, tc := range map[string]struct {
		happen func(s *Source)
		want   error
	}{
		"the group answers, then the policy": {func(s *Source) { s.answered(time.Now(), nil); s.h.end(stop) }, nil},
		"the policy, then the group answers": {func(s *Source) { s.h.end(stop); s.answered(time.Now(), nil) }, nil},
		"the group refuses":                  {func(s *Source) { s.refused(stop) }, stop},
		"it answers and then refuses":        {func(s *Source) { s.answered(time.Now(), nil); s.refused(stop) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := bareSource(t)
			tc.happen(s)
			if err := s.awaitGroup(t.Context()); !errors.Is(err, tc.want) {
				t.Errorf("Open says %v, want %v", err, tc.want)
			}
			if _, err := s.Receive(make([]broker.Message, 1)); !errors.Is(err, stop) {
				t.Errorf("Receive says %v, want %v", err, stop)
			}
		})
	}
}
