package page

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/deadletters"
)

// A choice says which dead letters are meant, as a form has it. Its fields are texts, so that a mistake can be shown as it was
// made.
type choice struct {
	Box                              string // their topic
	Class, Since, Key, Origin, State string
	// Places are letters by their names.
	Places []string
	// Scope is "ticked" for Places, or "all" for all that the other fields choose. Neither is the default: who says nothing has
	// chosen nothing.
	Scope string
}

// The two scopes.
const (
	scopeTicked = "ticked"
	scopeAll    = "all"
)

// readChoice reads a form. A time that is said as how long ago becomes the time that it was: the plan and the job mean the same.
func readChoice(form url.Values, now time.Time) choice {
	text := func(field string) string { return strings.TrimSpace(form.Get(field)) }
	c := choice{
		Box: text("box"), Class: text("class"), Since: text("since"), Key: form.Get("key"), Origin: text("origin"),
		State:  text("state"),
		Places: form["place"], Scope: text("scope"),
	}
	if ago, err := time.ParseDuration(c.Since); err == nil && ago >= 0 {
		c.Since = now.Add(-ago).UTC().Format(time.RFC3339)
	}
	return c
}

// listed is the filter of what is looked at in a box: all, where nothing is chosen. It reports all mistakes at once.
func (c choice) listed(box Letters) (f deadletters.Filter, err error) {
	f = deadletters.Filter{Handler: box.Handler, Class: c.Class, Topic: c.Origin, State: deadletters.State(c.State)}
	var errs []error
	if c.Since != "" {
		if f.Since, err = time.Parse(time.RFC3339, c.Since); err != nil {
			errs = append(errs, fmt.Errorf("since is %q, want a time as 2006-01-02T15:04:05Z, or how long ago, as 2h30m",
				cut(c.Since, 60)))
		}
	}
	if c.Key != "" {
		f.Key = []byte(c.Key)
	}
	switch f.State {
	case "", deadletters.Waiting, deadletters.Replayed, deadletters.Uncertain:
	default:
		errs = append(errs, fmt.Errorf("state is %q, want waiting, replayed or uncertain", cut(c.State, 60)))
	}
	if classes := consumer.FailureClasses(); c.Class != "" && !slices.Contains(classes, c.Class) {
		errs = append(errs, fmt.Errorf("class is %q, want one of %s", cut(c.Class, 60), strings.Join(classes, ", ")))
	}
	return f, errors.Join(errs...)
}

var (
	errNoneChosen = errors.New("no letter is chosen: tick some, or choose all of them with the button for that")
	errNoScope    = errors.New("it is not said which letters are meant: scope is ticked, or all")
)

// meant is the filter of what is to be changed in a box. An empty filter takes all, so all has to be said.
func (c choice) meant(box Letters) (f deadletters.Filter, err error) {
	f.Handler = box.Handler
	switch c.Scope {
	case scopeAll:
		return c.listed(box)
	case scopeTicked:
	default:
		return f, errNoScope
	}
	if len(c.Places) == 0 {
		return f, errNoneChosen
	}
	var errs []error
	for _, name := range c.Places {
		p, err := deadletters.ParsePlace(name)
		errs = append(errs, err)
		f.Places = append(f.Places, p)
	}
	return f, errors.Join(errs...)
}

// boxOf is the place of dead letters that a choice names; the first where it names none.
func (w *watched) boxOf(c choice) (Letters, error) {
	for _, l := range w.sources.Letters {
		if l.Topic == c.Box || c.Box == "" {
			return l, nil
		}
	}
	return Letters{}, fmt.Errorf("%w: the dead letters of this consumer are not in %q", broker.ErrNoTopic, cut(c.Box, 120))
}
