package consumer

import (
	"slices"
)

// A LetterRoute leads some of the dead letters to a topic of their own. It needs a Class, a Handler, or both.
type LetterRoute struct {
	// Class of the failure that it takes: one of FailureClasses. Set it where one kind of failure is another team's, or has to
	// be looked at first. Defaults to each of them.
	Class string `yaml:"class"`
	// Handler whose messages it takes: a name that DeadLetter.HandlerOf gives. Defaults to each of them, and to messages of none.
	Handler string `yaml:"handler"`
	// Topic (or subject) to publish to. Required.
	Topic string `yaml:"to"`
}

// Takes says whether a message that a handler failed with a class of failure goes this way.
func (r LetterRoute) Takes(class, handler string) bool {
	return (r.Class == "" || r.Class == class) && (r.Handler == "" || r.Handler == handler)
}

// Reached says whether anything is left for r by the routes before it.
func (r LetterRoute) Reached(before []LetterRoute) bool {
	return slices.ContainsFunc(FailureClasses(), func(class string) bool {
		return r.Takes(class, r.Handler) && !slices.ContainsFunc(before, func(b LetterRoute) bool { return b.Takes(class, r.Handler) })
	})
}

// target is where a dead letter goes: as the first route says that takes it, or else to Topic.
func (d *DeadLetter) target(class, handler string) string {
	for _, r := range d.Routes {
		if r.Takes(class, handler) {
			return r.Topic
		}
	}
	return d.Topic
}

// Targets are all topics that dead letters may go to, each once; Topic is the first.
func (d *DeadLetter) Targets() []string {
	all := []string{d.Topic}
	for _, r := range d.Routes {
		if !slices.Contains(all, r.Topic) {
			all = append(all, r.Topic)
		}
	}
	return all
}
