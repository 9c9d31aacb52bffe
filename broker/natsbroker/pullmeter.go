package natsbroker

import (
	"fmt"
	"slices"
)

// pullMeter knows since when pull requests are under way, where somebody measures them: from their sending until the account of
// the credit does not have them any more. Those that are void, since the connection or the inbox is another one, were not
// answered, and are not told. It does no I/O. Not safe for concurrent use.
type pullMeter struct {
	on   bool
	sent []sentPull
}

// A sentPull is a request under way.
type sentPull struct {
	id uint64
	at int64 // by the source's clock
}

// An endedPull is one that is over; err is why it was refused.
type endedPull struct {
	sent int64
	err  error
}

func (m *pullMeter) send(id uint64, now int64) {
	if m.on {
		m.sent = append(m.sent, sentPull{id, now})
	}
}

// void forgets all requests.
func (m *pullMeter) void() { m.sent = m.sent[:0] }

// answered takes the requests that are not under way any more, after a message came, or word that request id is over.
func (m *pullMeter) answered(underWay []request, id uint64, st status) (ended []endedPull) {
	if len(m.sent) == len(underWay) {
		return nil
	}
	m.sent = slices.DeleteFunc(m.sent, func(s sentPull) bool {
		over := !slices.ContainsFunc(underWay, func(r request) bool { return r.id == s.id })
		switch {
		case over && s.id == id:
			ended = append(ended, endedPull{s.at, st.refusal()})
		case over:
			ended = append(ended, endedPull{sent: s.at})
		}
		return over
	})
	return ended
}

// refusal is why a request failed; nil: it ended as requests do.
func (st status) refusal() error {
	switch st.verdict {
	case pullAlive, pullEnded, pullTooLarge:
		return nil
	}
	return fmt.Errorf("natsbroker: a pull ended with %s", st.text)
}
