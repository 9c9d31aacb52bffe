package kit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker/kit"
)

func TestLeaseClock(t *testing.T) {
	zero := time.Unix(1000, 0)
	at := func(s int) time.Time { return zero.Add(time.Duration(s) * time.Second) }
	for name, tc := range map[string]struct {
		then      func(l *kit.LeaseClock)
		now       int
		over, due bool
	}{
		"fresh":                      {now: 9},
		"to be extended":             {now: 10, due: true},
		"just not over":              {now: 29, due: true},
		"over":                       {now: 30, over: true},
		"renewed":                    {then: func(l *kit.LeaseClock) { l.Renew(at(20)) }, now: 29},
		"renewed by what is older":   {then: func(l *kit.LeaseClock) { l.Renew(at(-5)) }, now: 30, over: true},
		"renewed after its end":      {then: func(l *kit.LeaseClock) { l.Renew(at(40)) }, now: 45},
		"lost":                       {then: func(l *kit.LeaseClock) { l.Lose(at(5)) }, now: 6, over: true},
		"lost, and delivered again":  {then: func(l *kit.LeaseClock) { l.Lose(at(5)); l.Renew(at(6)) }, now: 7},
		"lost before it was renewed": {then: func(l *kit.LeaseClock) { l.Renew(at(6)); l.Lose(at(5)) }, now: 7},
		"lost and renewed at once":   {then: func(l *kit.LeaseClock) { l.Renew(at(5)); l.Lose(at(5)) }, now: 7, over: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := kit.NewLeaseClock(zero, 30*time.Second)
			if tc.then != nil {
				tc.then(&l)
			}
			if l.Over(at(tc.now)) != tc.over || l.Due(at(tc.now)) != tc.due {
				t.Errorf("over %v, due %v; want %v, %v", l.Over(at(tc.now)), l.Due(at(tc.now)), tc.over, tc.due)
			}
		})
	}
}

// A message from its delivery on.
func ExampleLeaseClock() {
	asked := time.Unix(0, 0)
	l := kit.NewLeaseClock(asked, 30*time.Second)
	fmt.Println(l.Due(asked.Add(5*time.Second)), l.Due(asked.Add(10*time.Second)))
	l.Renew(asked.Add(10 * time.Second)) // the extension was answered
	fmt.Println(l.Over(asked.Add(35*time.Second)), l.Over(asked.Add(40*time.Second)))
	// Output:
	// false true
	// false true
}
