package absence_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/absence"
)

func TestTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topics absence.Topics
		missing := fmt.Errorf("away: %w", broker.ErrNoTopic)
		is := func(topic string, wait time.Duration, err error) {
			t.Helper()
			if d, got := topics.Of(topic); d != wait || !errors.Is(got, err) {
				t.Errorf("%s: %v, %v, want %v, %v", topic, d, got, wait, err)
			}
		}
		is("a", 0, nil)
		topics.Learn("a", missing)
		topics.Learn("b", errors.New("timed out"))
		is("a", 10*time.Second, missing)
		is("b", 0, nil)
		time.Sleep(10 * time.Second)
		is("a", 0, nil) // one asks
		is("a", 10*time.Second, missing)
		topics.Learn("a", errors.New("timed out"))
		is("a", 10*time.Second, missing)
		topics.Learn("a", nil)
		is("a", 0, nil)
	})
}

// However many topics are missing, the memory of them is bounded, and the others are asked for each time.
func TestTopicsAreBounded(t *testing.T) {
	var topics absence.Topics
	known := 0
	for i := range 2000 {
		topics.Learn(fmt.Sprint(i), broker.ErrNoTopic)
		if _, err := topics.Of(fmt.Sprint(i)); err != nil {
			known++
		}
	}
	if known != 1000 {
		t.Errorf("%d are known", known)
	}
}
