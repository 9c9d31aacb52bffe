package config

import (
	"slices"
	"strconv"
)

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

// checkLetterRoutes: they lead somewhere, and from handlers that there are. What they leave to each other the engine says.
func (cc *consumerCheck) checkLetterRoutes() {
	handlers := cc.handlers()
	for i, r := range cc.DeadLetter.Routes {
		key := ".dead_letter.routes[" + strconv.Itoa(i) + "]"
		cc.checkLetterTarget(key+".to", r.Topic)
		if r.Handler != "" && !slices.Contains(handlers, r.Handler) {
			cc.find(key+".handler", "is %q, and the consumer has only %q", r.Handler, handlers)
		}
	}
}
