package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer/admin/page"
	"github.com/longshoremq/longshore/deadletters"
	"github.com/longshoremq/longshore/program/internal/config"
)

// newPage is the web page of the admin server; nil where there is none.
func newPage(doc *config.Document) *page.Page {
	c := doc.File.Admin
	if c == nil || !c.Serves() {
		return nil
	}
	return page.New(page.Config{HidePayloads: hidesPayloads(doc)})
}

// hidesPayloads says whether the file keeps payloads and keys from everybody.
func hidesPayloads(doc *config.Document) bool {
	return doc.Has("admin.ui.payloads") && !doc.File.Admin.UI.Payloads
}

// pageSources are what the page shows of a consumer beside what it tells itself. Nothing of it connects before somebody looks;
// what it uses is closed with the member.
func (a *assembly) pageSources(name string, c *config.Consumer, m *member) page.Sources {
	s := page.Sources{Lags: a.pageLags(name, c, m), Times: m.figures}
	if c.DeadLetter == nil {
		return s
	}
	store := a.letterStore(c, m)
	if store == nil {
		return s
	}
	for _, topic := range c.DeadLetter.Targets() {
		handler := ""
		if a.doc.File.SharesLetters(c, topic) {
			handler = name
		}
		s.Letters = append(s.Letters, page.Letters{
			Config: deadletters.Config{Topic: topic, Store: store, Publisher: m.publisher}, Handler: handler,
			Allow: func(ctx context.Context) (func(string) bool, error) { return origins(ctx, &a.doc.File, c) },
		})
	}
	return s
}

// letterStore reads the topics of dead letters; nil where the broker is from outside, or where something was wrong, which the
// source says.
func (a *assembly) letterStore(c *config.Consumer, m *member) deadletters.Store {
	var nats natsbroker.LogViewConfig
	switch n, core, k := c.Source.NATS, c.Source.NATSCore, c.Source.Kafka; {
	case n != nil:
		cfg := n.Adapter(embeddedURL(a.doc.File.Embedded))
		nats = natsbroker.LogViewConfig{Connection: cfg.Connection, Domain: cfg.Domain}
	case core != nil: // a stream takes them, if one has the subject
		nats = natsbroker.LogViewConfig{Connection: core.Adapter(embeddedURL(a.doc.File.Embedded)).Connection}
	case k != nil:
		at := k.Adapter().Connection
		at.ClientID = cmp.Or(at.ClientID, "longshore-page")
		if v, err := kafkabroker.NewLogView(kafkabroker.LogViewConfig{Connection: at}); err == nil {
			m.closing = append(m.closing, v.Close)
			return v
		}
		return nil
	default:
		return nil
	}
	v, err := natsbroker.NewLogView(nats)
	if err != nil {
		return nil
	}
	m.closing = append(m.closing, v.Close)
	return v
}

// pageLags asks the brokers how far a consumer is; nil where a broker is from outside.
func (a *assembly) pageLags(name string, c *config.Consumer, m *member) func(context.Context) ([]page.Lag, error) {
	for _, in := range c.Reads() {
		if in.NATS == nil && in.Kafka == nil {
			return nil
		}
	}
	views, err := consumerViews(name, c, a.doc)
	for _, v := range views {
		m.closing = append(m.closing, v.close)
	}
	if err != nil {
		return nil // the sources say the same
	}
	return func(ctx context.Context) (all []page.Lag, err error) {
		for _, v := range views {
			rows, e := v.read(ctx)
			err = errors.Join(err, e)
			for _, r := range rows {
				all = append(all, pageLag(r))
			}
		}
		return all, err
	}
}

// pageLag is a row as the page has it.
func pageLag(r lagRow) page.Lag {
	l := page.Lag{Of: r.Stream + " " + r.Durable, Committed: r.Committed, End: r.End, Lag: r.Lag, Finished: r.Finished, Err: r.Error,
		Pending: r.pending, Redelivered: r.redelivered}
	switch {
	case r.Partition != nil:
		l.Of = fmt.Sprintf("%s %d", r.Topic, *r.Partition)
	case r.Topic != "" || r.Stream == "":
		l.Of = fmt.Sprintf("%s %s", r.Topic, r.Group)
	}
	return l
}
