package deadletters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// JournalTopic is where it is written down which letters of a dead-letter topic were replayed.
func JournalTopic(topic string) string { return "longshore.replays." + topic }

// ErrTaken says that another replay of the same dead letters began after this one, which has stopped.
var ErrTaken = errors.New("deadletters: another replay of the same letters has begun")

// A journal is the record of replays of one dead-letter topic. The order in which the broker stores its records is the order of
// what happened.
type journal struct {
	store Store
	pub   broker.Publisher
	topic string
	log   string // of the dead letters
	run   string // this replay; empty: only reading
	n     int    // records of this run, to name them
	at    int64  // the place of the last record that was read; -1: none
	mine  string // the id of the last record that this replay has stored
	seen  bool   // that one was read
	self  string // the journal's own log
	limit time.Duration
	bad   *Unreadable
}

// Unreadable are records of a journal that cannot be read. They are passed over: whoever may publish to the journal can write
// one, and a replay that stopped there would never go on. A letter of which only such a record speaks counts as waiting. Only one
// that says that it is of a newer longshore ends a replay: what that one has replayed would be published once more.
type Unreadable struct {
	// Topic is the journal's.
	Topic string
	Count int64
	// First are the first ten of them, and why.
	First []Refusal
	// Cut: records are gone from the journal, as far as the broker can tell, for it was given a limit. Letters of which they spoke
	// count as waiting, too.
	Cut bool
}

// maxUnreadable is how many are named.
const maxUnreadable = 10

func (u *Unreadable) add(p broker.Place, err error) {
	if u.Count++; len(u.First) < maxUnreadable {
		u.First = append(u.First, Refusal{p, err})
	}
}

func (l *Letters) journal(run string) *journal {
	return &journal{store: l.cfg.Store, pub: l.cfg.Publisher, topic: JournalTopic(l.cfg.Topic), log: l.log, run: run, at: -1,
		limit: l.cfg.ConfirmTimeout, bad: &l.bad}
}

// load reads all of it. None: nothing was replayed.
func (j *journal) load(ctx context.Context) (*marks, error) {
	known := newMarks(j.log)
	*j.bad = Unreadable{Topic: j.topic}
	done, err := j.store.Scan(ctx, broker.Scan{Topic: j.topic}, func(m *broker.Message) error { return j.read(m, known) })
	if errors.Is(err, broker.ErrNoTopic) && j.run == "" {
		return known, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the journal of replays, %s: %w", j.topic, err)
	}
	j.self, j.bad.Cut = done.Log, !done.Whole
	return known, nil
}

func (j *journal) read(m *broker.Message, known *marks) error {
	j.at = max(j.at, m.Offset)
	j.seen = j.seen || j.mine != "" && storedID(m) == j.mine
	r, err := decodeRecord(m.Value)
	if err != nil {
		at := broker.Place{Partition: m.Partition, Offset: m.Offset}
		if errors.Is(err, errNewer) && j.run != "" && (r.Log == "" || r.Log == j.log) {
			return fmt.Errorf("record %s: %w: let that one replay", FormatPlace(at), err)
		}
		j.bad.add(at, err)
		return nil
	}
	return known.add(r)
}

// older is the error of a broker that does not show the last record that this replay has stored.
func (j *journal) older() error {
	return fmt.Errorf("reading the journal of replays, %s: what was just written is not there, so the broker shows an older state",
		j.topic)
}

// append stores a record, confirmed. The end of ctx does not cut it: what was done has to be written down.
func (j *journal) append(ctx context.Context, r record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), j.limit)
	defer cancel()
	r.Version, r.Run, r.Log, r.At = recordVersion, j.run, j.log, time.Now().UTC()
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	j.n++
	j.mine, j.seen = fmt.Sprintf("%s/%d", j.run, j.n), false
	o := broker.Outgoing{Topic: j.topic, Value: b, ID: j.mine}
	sent := confirm(ctx, j.pub, []broker.Outgoing{o})
	if err := sent[0].err; err != nil {
		return fmt.Errorf("writing the journal of replays, %s: %w", j.topic, err)
	}
	return nil
}

// taken says whether another replay began after this one: then it is that one which goes on. It reads what was stored since the
// last look.
//
// Two replays at a time: A writes down that it begins a batch, B begins its run, A looks here and sees B, so A publishes nothing
// of that batch. Or B begins after A has looked: then B finds A's batch in the journal, begun and not confirmed, and treats it as
// a stopped one, which waits (Config.Settle) and looks for it in its topic.
//
// That holds only if A sees all that is stored before its own record. A broker that was the journal's leader and does not know
// yet that it is no more, or one that has just become it, may show less: A looks again until its own record is there. And of a
// journal with a limit, what B has written may be gone before A looks, who was frozen: as is then the record that A read last.
func (j *journal) taken(ctx context.Context, known *marks) error {
	for end := time.Now().Add(j.limit); ; {
		last, kept := j.at, j.at < 0
		done, err := j.store.Scan(ctx, broker.Scan{Topic: j.topic, Offset: max(0, last)}, func(m *broker.Message) error {
			if m.Offset == last {
				kept = true
				return nil
			}
			return j.read(m, known)
		})
		switch {
		case err != nil:
			return fmt.Errorf("reading the journal of replays, %s: %w", j.topic, err)
		case done.Log != j.self:
			return fmt.Errorf("the journal of replays, %s, was deleted meanwhile", j.topic)
		case known.run != j.run:
			return fmt.Errorf("%w (%s)", ErrTaken, known.run)
		case !kept && j.at > last:
			return fmt.Errorf("reading the journal of replays, %s: records are gone from it that were not read, perhaps of another "+
				"replay, for it has a limit: the next replay goes on", j.topic)
		case j.seen:
			return nil
		case time.Now().After(end):
			return j.older()
		}
		if err := sleep(ctx, confirmPause); err != nil {
			return err
		}
	}
}
