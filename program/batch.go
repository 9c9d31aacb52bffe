package program

import (
	"errors"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/program/internal/config"
)

// batch makes a consumer's batch handler with its sizes; nil where there is none, or something was wrong.
func (a *assembly) batch(at string, c *config.Consumer, m *member) *consumer.Batch {
	b := c.Batch
	if b == nil || b.Handler == "" {
		return nil
	}
	a.codec(at+".codec", b.Codec, m)
	h, err := a.parts.Handlers.BuildBatch(b.Handler, m.setup, a.doc.Options(at+".with", b.With))
	switch {
	case err == nil:
	case errors.Is(err, handlers.ErrUnknown):
		a.doc.Find(at+".handler", "is %q, want one of %v", b.Handler, a.parts.Handlers.BatchNames())
	default:
		a.doc.FindOptions(at+".with", err)
	}
	a.decodes(at, b.Codec, m, err)
	if err != nil {
		return nil
	}
	h = m.figures.RouteBatch("batch", b.Handler)(h)
	made := b.Batch
	made.Handler = h
	return &made
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
