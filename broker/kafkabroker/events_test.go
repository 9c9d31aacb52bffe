package kafkabroker

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// TestStaleAnswer: an answer that was on its way when contact was lost is no contact. It said Up; the failures after it were not
// told, being within a second of the last one; and then the broker came back without a word.
func TestStaleAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		steps []string
		want  []broker.Kind
	}{
		"stale":            {[]string{"begin", "fail", "answer", "fail", "begin", "answer"}, []broker.Kind{broker.Down, broker.Up}},
		"back":             {[]string{"fail", "begin", "answer"}, []broker.Kind{broker.Down, broker.Up}},
		"still down":       {[]string{"begin", "fail", "answer", "second", "fail", "second", "fail", "answer"}, []broker.Kind{broker.Down, broker.Down}},
		"gone again later": {[]string{"fail", "begin", "answer", "second", "fail"}, []broker.Kind{broker.Down, broker.Up, broker.Down}},
		"first contact":    {[]string{"begin", "answer"}, []broker.Kind{broker.Up}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Source{life: context.Background(), phase: opened, kick: make(chan struct{}, 1)}
				var began time.Time
				for _, step := range tc.steps {
					time.Sleep(time.Millisecond)
					switch step {
					case "begin":
						began = time.Now()
					case "answer":
						s.note(began, nil)
					case "fail":
						s.note(time.Time{}, errors.New("connection refused"))
					case "second":
						time.Sleep(time.Second)
					}
				}
				var got []broker.Kind
				for _, e := range s.events {
					got = append(got, e.Kind)
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("told %v, want %v", got, tc.want)
				}
			})
		})
	}
}
