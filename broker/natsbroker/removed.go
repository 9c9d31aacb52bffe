package natsbroker

import (
	"context"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// removed are the messages that a stream has let go of: by a limit, a deletion, a purge. Their consumer counts them as settled,
// whoever has them. The zero value is of a stream that could not be asked, and has none.
type removed struct {
	first   uint64 // that is still there
	between []uint64
}

// mostRemoved bounds what is asked for: a list of ten megabytes. A stream with more holes is one that could not be asked.
const mostRemoved = 1 << 20

// has says whether a message is among them.
func (r removed) has(seq uint64) bool {
	_, found := slices.BinarySearch(r.between, seq)
	return found || seq < r.first
}

// removed asks the stream what it has let go of.
func (r *remoteConsumer) removed(ctx context.Context) (removed, error) {
	js, err := r.cfg.api(r.link.conn())
	if err != nil {
		return removed{}, err
	}
	st, err := js.Stream(ctx, r.cfg.Stream)
	if err != nil {
		return removed{}, err
	}
	state := st.CachedInfo().State
	if state.NumDeleted == 0 || state.NumDeleted > mostRemoved {
		return removed{first: state.FirstSeq}, nil
	}
	info, err := st.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return removed{}, err
	}
	slices.Sort(info.State.Deleted)
	return removed{info.State.FirstSeq, info.State.Deleted}, nil
}
