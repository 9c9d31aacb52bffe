package config

import (
	"slices"
	"strconv"

	"github.com/longshoremq/longshore/consumer"
)

// Targets are all topics or subjects that dead letters may go to, each once; To is the first.
func (l *DeadLetter) Targets() []string {
	all := []string{l.To}
	for _, r := range l.Routes {
		if !slices.Contains(all, r.To) {
			all = append(all, r.To)
		}
	}
	return all
}

// LetterRoutes are the engine's of the file's.
func (l *DeadLetter) LetterRoutes() (all []consumer.LetterRoute) {
	for _, r := range l.Routes {
		all = append(all, consumer.LetterRoute{Class: r.Class, Handler: r.Handler, Topic: r.To})
	}
	return all
}

// handlers are the names of those that a consumer's messages may be for.
func (c *Consumer) handlers() (names []string) {
	if c.Batch != nil {
		return []string{c.Batch.Handler}
	}
	for _, r := range c.Routes {
		if !slices.Contains(names, r.Handler) {
			names = append(names, r.Handler)
		}
	}
	return names
}

// checkLetterRoutes: each takes what there is, and what the ones before it leave.
func (d *Document) checkLetterRoutes(path string, c *Consumer) {
	routes, classes, handlers := c.DeadLetter.LetterRoutes(), consumer.FailureClasses(), c.handlers()
	for i, r := range routes {
		at, known := path+"["+strconv.Itoa(i)+"]", true
		d.checkLetterTarget(at+".to", r.Topic, c)
		if r.Class != "" && !slices.Contains(classes, r.Class) {
			d.Find(at+".class", "is %q, want one of %v", r.Class, classes)
			known = false
		}
		if r.Handler != "" && !slices.Contains(handlers, r.Handler) {
			d.Find(at+".handler", "is %q, and the consumer has only %q", r.Handler, handlers)
			known = false
		}
		switch {
		case r.Class == "" && r.Handler == "":
			d.Find(at, "has neither class nor handler: it would take what dead_letter.to is for")
		case known && !r.Reached(routes[:i]):
			d.Find(at, "is never taken: the routes before it take all that it would")
		}
	}
}
