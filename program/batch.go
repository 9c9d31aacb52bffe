package program

import (
	"errors"
	"slices"
	"strconv"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/program/internal/config"
)

// batch makes a consumer's batch handler with its sizes; nil where there is none, or something was wrong.
func (a *assembly) batch(root string, c *config.Consumer, m *member) *consumer.Batch {
	b, at := c.Batch, root+".batch"
	if b == nil || b.Handler == "" {
		return nil
	}
	a.codec(at+".codec", b.Codec, m)
	a.warnUnwritten(at, b.Handler, b.With)
	h, err := a.parts.Handlers.BuildBatch(b.Handler, m.setup, a.doc.Options(at+".with", b.With))
	switch {
	case err == nil:
	case errors.Is(err, handlers.ErrUnknown):
		a.doc.Find(at+".handler", unknownHandler, b.Handler, a.parts.Handlers.BatchNames())
	default:
		a.doc.FindOptions(at+".with", err)
	}
	a.decodes(at, b.Codec, m, err)
	if err != nil {
		return nil
	}
	h = m.figures.RouteBatch("batch", b.Handler)(h)
	made := b.Batch
	if made.Handler = a.wrapBatch(root, c.Middleware, m, h); made.Handler == nil {
		return nil // was found
	}
	return &made
}

// aroundBatches are the middleware that look at calls, and not at messages.
var aroundBatches = []string{"circuit_breaker", "logging", "recover", "timeout"}

// wrapBatch is wrap for a batch handler.
func (a *assembly) wrapBatch(at string, list []config.Middleware, m *member, h consumer.BatchHandler) consumer.BatchHandler {
	chain, ok := a.chain(at, list, m)
	for i, one := range list {
		if one.Use != "" && !slices.Contains(aroundBatches, one.Use) {
			a.doc.Find(at+".middleware["+strconv.Itoa(i)+"].use", "is %q, which decides by the message; around batches want one of %v",
				one.Use, aroundBatches)
			ok = false
		}
	}
	if !ok {
		return nil
	}
	for _, w := range slices.Backward(chain) {
		h = consumer.AroundBatch(w)(h)
	}
	return h
}

// codec hands a codec to the handler that is made next.
func (a *assembly) codec(path, name string, m *member) {
	m.setup.Codec = nil
	if name == "" {
		return
	}
	c, err := a.parts.Handlers.Codec(name)
	if err != nil {
		a.doc.Find(path, "is %q, want one of %v", name, a.parts.Handlers.CodecNames())
		return
	}
	m.setup.Codec = c
}

// decodes finds a codec that the handler which was just made does not use.
func (a *assembly) decodes(at, name string, m *member, err error) {
	if used := m.setup.Decodes(); name != "" && err == nil && !used {
		a.doc.Find(at+".codec", "is set, and the handler decodes nothing")
	}
}
