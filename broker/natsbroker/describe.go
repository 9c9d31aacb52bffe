package natsbroker

import (
	"strconv"

	"github.com/longshoremq/longshore/broker"
)

var (
	_ broker.Describer = (*Source)(nil)
	_ broker.Describer = (*CoreSource)(nil)
)

// Describe implements broker.Describer.
func (s *Source) Describe() broker.Description {
	d := describe(s.cfg.URLs)
	d.Group, d.Stream, d.Patterns = s.cfg.Consumer, s.cfg.Stream, s.cfg.Subjects
	return d
}

// Describe implements broker.Describer.
func (s *CoreSource) Describe() broker.Description {
	d := describe(s.cfg.URLs)
	d.Group, d.Patterns = s.cfg.Queue, s.cfg.Subjects
	return d
}

// describe is what the addresses say; nothing of a login that stands in one.
func describe(urls []string) broker.Description {
	d := broker.Description{System: "nats"}
	if u, err := parseURL(urls[0]); err == nil {
		d.Server = u.Hostname()
		d.Port, _ = strconv.Atoi(u.Port())
	}
	return d
}
