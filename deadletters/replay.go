package deadletters

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/longshoremq/longshore/broker"
)

// Replay says which letters to replay, where to, and how fast.
type Replay struct {
	// Filter chooses the letters. What was replayed is left out whatever it says, unless Again is set.
	Filter Filter
	// To is the topic or subject to publish to. Defaults to where each letter came from.
	To string
	// Allow says of the topic that a letter names as its origin whether it may be published to: the header is written by whoever may
	// publish dead letters, and the replay has rights that they perhaps have not. Required, except with To or Handle, where it is
	// not asked. What is the broker's own (broker.CheckDestination) is refused whatever it says.
	Allow func(topic string) bool
	// Handle handles each letter in this process, instead of publishing it; nil: the letter counts as replayed. An error, or a
	// panic, leaves it as it was. After a kill the handlers that were running are run again. Defaults to nil.
	Handle func(ctx context.Context, m *broker.Message) error
	// HandlerName names what Handle does, in the journal. Required with Handle.
	HandlerName string
	// Workers is how many letters are handled at once. Defaults to 1.
	Workers int
	// Rate is the most letters a second. Defaults to 0: as fast as they are confirmed.
	Rate float64
	// Limit is the most letters to publish, or to handle. One that is refused before that (by MaxReplays, Allow, Edit, for it names
	// no destination) does not count, or those in front would stand before all others for ever. Defaults to 0: all.
	Limit int64
	// MaxReplays is how often a message may be replayed, all told; a letter that came back so often is refused. Defaults to 5.
	MaxReplays int
	// Again replays letters that were replayed before, too. A replay with Again goes on with one that was stopped or killed: what
	// that one has replayed is left out. One whose Filter names Places goes on with such ones only, and leaves the others stopped.
	Again bool
	// Edit changes each message before it is published: its key, value and headers; one whose topic or ID it changes is refused with
	// ErrEdited. A letter whose edited copy was published counts as replayed. Defaults to nil.
	Edit func(*broker.Outgoing) error
	// By is who replays, a name or an address: the journal keeps it, so that Letter.ReplayedBy answers who it was. It is believed as
	// it is, and cut to 256 bytes. Defaults to none.
	By string
	// DryRun decides, and changes nothing. Where the Publisher is a broker.Destinations, a letter for whose topic it finds no place
	// is refused.
	DryRun bool
	// Batch is how many letters are on their way together, and so how many are uncertain after a kill. Defaults to 100 or a tenth of
	// Rate, if that is less; with Handle to Workers.
	Batch int

	// OnLetter is told of each chosen letter that is about to be replayed, with where to, or is refused, with why. Defaults to none.
	OnLetter func(l *Letter, to string, refused error)
	// OnProgress is told how many of how many letters are done, one after the other. Defaults to none.
	OnProgress func(done, of int64)
}

// maxBy bounds Replay.By.
const maxBy = 256

// batchBytes ends a batch before Batch letters are in it.
const batchBytes = 4 << 20

func (o Replay) withDefaults() Replay {
	o.MaxReplays = cmp.Or(o.MaxReplays, 5)
	o.Workers = cmp.Or(o.Workers, 1)
	o.By = strings.ToValidUTF8(o.By[:min(len(o.By), maxBy)], "")
	if o.Batch == 0 {
		o.Batch = 100
		if o.Rate > 0 {
			o.Batch = max(1, min(o.Batch, int(o.Rate/10)))
		}
		if o.Handle != nil {
			o.Batch = o.Workers
		}
	}
	if o.OnLetter == nil {
		o.OnLetter = func(*Letter, string, error) {}
	}
	if o.OnProgress == nil {
		o.OnProgress = func(int64, int64) {}
	}
	return o
}

func (o Replay) validate(topic string) error {
	f := &broker.Findings{Of: "deadletters"}
	f.Check(o.Rate >= 0, "Replay.Rate", "is %v, negative", o.Rate)
	f.Check(o.Limit >= 0, "Replay.Limit", "is %d, negative", o.Limit)
	f.Check(o.MaxReplays > 0, "Replay.MaxReplays", "is %d, want at least 1", o.MaxReplays)
	f.Check(o.Workers > 0, "Replay.Workers", "is %d, want at least 1", o.Workers)
	f.Check(o.Batch > 0 && o.Batch <= maxSpan, "Replay.Batch", "is %d, want 1 to %d", o.Batch, maxSpan)
	f.Check(o.Handle == nil || o.HandlerName != "", "Replay.HandlerName", "is required with Handle")
	f.Check(o.Handle == nil || o.To == "", "Replay.To", "is %q, and Handle is set: one of them", o.To)
	f.Check(o.Handle == nil || o.Edit == nil, "Replay.Edit", "is set, and Handle: an edited letter is published")
	f.Check(o.Allow != nil || o.To != "" || o.Handle != nil, "Replay.Allow",
		"is required where neither To nor Handle is set: a letter may name any topic as its origin")
	if err := broker.CheckDestination(o.To); err != nil {
		f.Add("Replay.To", "is refused: %v", err)
	}
	if o.To == topic || o.To == JournalTopic(topic) {
		f.Add("Replay.To", "is %q: %v", o.To, ErrCircle)
	}
	return f.Err()
}

// A replay is one under way.
type replay struct {
	l       *Letters
	o       Replay
	j       *journal
	known   *marks
	sum     Summary
	limiter *rate.Limiter
	batch   []pendingReplay
	last    []pendingReplay // of the batch before, what is done
	bytes   int
	total   int64
	tried   int64 // of the chosen letters, those that were not refused before they were published or handled
	done    int64
	found   map[string]error // of a dry run: the topics that were looked for
}

// A pendingReplay is a letter that is being replayed.
type pendingReplay struct {
	letter *Letter
	to     string
	out    broker.Outgoing
	was    *stroke // its replay before, when it was chosen
	// late: when it was begun, another replay had said meanwhile that it had published it.
	late bool
}

// Replay replays the letters that o chooses, as of when it began. It blocks until that is done, ctx ends (what is on its way is
// finished first), or the broker cannot be reached for ConfirmTimeout. However it ends, or is killed, the next call goes on where
// it stopped. A replay that begins while another one of the same letters is under way takes over; the other one ends with
// ErrTaken.
func (l *Letters) Replay(ctx context.Context, o Replay) (Summary, error) {
	o = o.withDefaults()
	if err := o.validate(l.cfg.Topic); err != nil {
		return Summary{}, err
	}
	if l.cfg.Publisher == nil && !o.DryRun {
		return Summary{}, errors.New("deadletters: Publisher is required to replay")
	}
	r := &replay{l: l, o: o}
	err := r.prepare(ctx)
	if err == nil {
		err = r.run(ctx)
	}
	r.sum.Unreadable = l.bad
	if ctx.Err() != nil {
		r.sum.Stopped = true
		if errors.Is(err, ctx.Err()) {
			err = nil
		}
	}
	return r.sum, err
}

// prepare begins the run in the journal and finds out what became of those that were stopped.
func (r *replay) prepare(ctx context.Context) (err error) {
	if r.o.DryRun {
		r.known, err = r.l.known(ctx)
		return err
	}
	if err := r.l.identify(ctx); err != nil {
		return err
	}
	r.sum.Run = time.Now().UTC().Format("20060102T150405Z") + "-" + hostname() + "-" + rand.Text()[:8]
	r.j = r.l.journal(r.sum.Run)
	if err := r.l.cfg.Store.CreateLog(ctx, r.j.topic, r.l.cfg.Topic); err != nil {
		return fmt.Errorf("making the journal of replays: %w", err)
	}
	if err := r.j.append(ctx, record{Step: stepRun, Again: r.o.Again, Named: r.named(), By: r.o.By}); err != nil {
		return err
	}
	if r.known, err = r.j.load(ctx); err != nil {
		return err
	}
	switch {
	case !r.j.seen:
		return r.j.older()
	case r.known.run != r.j.run:
		return fmt.Errorf("%w (%s)", ErrTaken, r.known.run)
	}
	return r.resolve(ctx)
}

// run reads the letters twice: to know how many there are, and to replay them.
func (r *replay) run(ctx context.Context) error {
	limit := rate.Inf
	if r.o.Rate > 0 {
		limit = rate.Limit(r.o.Rate)
	}
	r.limiter = rate.NewLimiter(limit, r.o.Batch)
	if err := r.count(ctx); err != nil {
		return err
	}
	err := r.l.scan(ctx, r.known, r.o.Filter, func(x *Letter) error {
		if r.o.Limit > 0 && r.tried >= r.o.Limit {
			return broker.ErrStopScan
		}
		return r.take(ctx, x)
	})
	if err == nil {
		err = r.flush(ctx)
	}
	if err == nil && r.o.Again && !r.o.DryRun {
		err = r.j.append(ctx, record{Step: stepEnd, Named: r.named()})
	}
	if err == nil && r.last != nil {
		if err = r.taken(ctx); errors.Is(err, ErrTaken) {
			err = nil // it has come to its end
		}
	}
	return err
}

// taken is journal.taken. What another replay has published, too, since it did not find it, is named. It is of the batch before:
// had the other one begun sooner, this one would have stopped before that.
func (r *replay) taken(ctx context.Context) error {
	err := r.j.taken(ctx, r.known)
	for _, x := range r.last {
		if p := x.letter.Place; r.known.of(p).twice {
			r.sum.twice(p)
		}
	}
	r.last = nil
	return err
}

func (r *replay) count(ctx context.Context) error {
	return r.l.scan(ctx, r.known, r.o.Filter, func(x *Letter) error {
		if r.wanted(x) {
			r.total++
		}
		return nil
	})
}

// wanted says whether a letter that the filter takes is to be replayed: it was not, or it is not known, or it is wanted again.
func (r *replay) wanted(x *Letter) bool {
	if x.State != Replayed {
		return true
	}
	done := r.known.of(x.Place).done
	if !r.o.Again {
		return false
	}
	again := r.known.again // of a run, or of the one that found what it has published
	return !again.leaveOut(done.run, r.named()) && !again.leaveOut(done.of, r.named())
}

// named says whether the replay is one with Again of letters that are named.
func (r *replay) named() bool { return r.o.Again && len(r.o.Filter.Places) > 0 }

// take puts a letter into the batch, or refuses it.
func (r *replay) take(ctx context.Context, x *Letter) error {
	if !r.wanted(x) {
		r.sum.Before++
		return nil
	}
	r.sum.Chosen++
	to, err := destination(x, r.l.cfg.Topic, r.o)
	var out broker.Outgoing
	if err == nil {
		out = outgoing(x, r.l.cfg.Topic, to, replayID(r.l.cfg.Topic, r.l.log, x.Place, r.suffix()), time.Now())
		if r.o.Edit != nil {
			err = r.edit(&out)
		}
	}
	if err == nil && r.o.DryRun && r.o.Handle == nil {
		err = r.find(ctx, to)
	}
	r.o.OnLetter(x, to, err)
	if err != nil {
		r.sum.Refused++
		r.sum.refuse(x.Place, err)
		r.progress(1)
		return nil
	}
	r.tried++
	if r.o.DryRun {
		r.sum.Replayed++
		return nil
	}
	r.batch = append(r.batch, pendingReplay{letter: x, to: to, out: out, was: r.known.of(x.Place).done})
	if r.bytes += len(out.Value) + len(out.Key); len(r.batch) < r.o.Batch && r.bytes < batchBytes {
		return nil
	}
	return r.flush(ctx)
}

// findTimeout is how long a dry run waits for a broker that may not say what there is.
const findTimeout = 5 * time.Second

// find says that there is no place for what would be published to a topic, as far as the publisher can tell: it is asked once.
func (r *replay) find(ctx context.Context, topic string) error {
	known, ok := r.l.cfg.Publisher.(broker.Destinations)
	if err, asked := r.found[topic]; asked || !ok {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	err := known.Find(ctx, topic)
	if errors.Is(err, broker.ErrNoTopic) {
		err = fmt.Errorf("nothing is found there that would keep it: %w", err)
	} else {
		err = nil
	}
	if r.found == nil {
		r.found = map[string]error{}
	}
	r.found[topic] = err
	return err
}

// edit calls Edit, which has a say in neither where the journal says that the letter goes nor the id that it is found by there.
func (r *replay) edit(out *broker.Outgoing) error {
	topic, id, key := out.Topic, out.ID, bytes.Clone(out.Key)
	if err := r.o.Edit(out); err != nil {
		return err
	}
	if out.Topic != topic || out.ID != id {
		return fmt.Errorf("%w: topic %q, ID %q", ErrEdited, out.Topic, out.ID)
	}
	if !bytes.Equal(out.Key, key) { // the partition was the old key's
		out.Partition = nil
	}
	return nil
}

// suffix makes the ids of a run that publishes other things than the one before, or on purpose the same again, its own.
func (r *replay) suffix() string {
	if r.o.Edit != nil || r.o.Again {
		return r.sum.Run
	}
	return ""
}

func (r *replay) progress(n int) {
	r.done += int64(n)
	of := r.total
	if r.o.Limit > 0 {
		of = min(of, r.o.Limit+r.sum.Chosen-r.tried)
	}
	r.o.OnProgress(r.done, of)
}

// flush sends the batch: first it is written down that it begins, then it is published, then what became of it is written down.
func (r *replay) flush(ctx context.Context) error {
	batch := r.batch
	r.batch, r.bytes = nil, 0
	if len(batch) == 0 {
		return nil
	}
	if err := r.limiter.WaitN(ctx, len(batch)); err != nil {
		<-ctx.Done() // it says so beforehand where ctx ends before its turn
		return ctx.Err()
	}
	if err := r.j.append(ctx, r.record(stepBegin, batch)); err != nil {
		return err
	}
	if err := r.taken(ctx); err != nil {
		return errors.Join(err, r.write(ctx, stepUndone, batch))
	}
	for i := range batch {
		x := &batch[i]
		now := r.known.of(x.letter.Place).done
		x.late = now != nil && now.of != r.j.run && (x.was == nil || x.was.of != now.of)
		if x.letter.State == Uncertain { // resolve could not find out
			r.sum.twice(x.letter.Place)
		}
	}
	if r.o.Handle != nil {
		return r.handled(ctx, batch, r.handle(ctx, batch))
	}
	return r.published(ctx, batch, r.publish(ctx, batch))
}

func (r *replay) record(step string, batch []pendingReplay) record {
	return record{Step: step, Letters: byDestination(batch), Handled: r.o.Handle != nil, Edited: r.o.Edit != nil, Suffix: r.suffix()}
}

func byDestination(batch []pendingReplay) map[string]spans {
	by := map[string][]broker.Place{}
	for _, x := range batch {
		by[x.to] = append(by[x.to], x.letter.Place)
	}
	letters := map[string]spans{}
	for to, places := range by {
		letters[to] = spansOf(places)
	}
	return letters
}

func (r *replay) write(ctx context.Context, step string, batch []pendingReplay, twice ...pendingReplay) error {
	if len(batch) == 0 {
		return nil
	}
	rec := r.record(step, batch)
	if len(twice) > 0 {
		rec.Twice = byDestination(twice)
	}
	return r.j.append(ctx, rec)
}

// publish does not end with ctx: what was begun is finished.
func (r *replay) publish(ctx context.Context, batch []pendingReplay) []sending {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.l.cfg.ConfirmTimeout)
	defer cancel()
	ms := make([]broker.Outgoing, len(batch))
	for i, x := range batch {
		ms[i] = x.out
	}
	return confirm(ctx, r.l.cfg.Publisher, ms)
}

// published writes down what became of a batch. What is neither confirmed nor refused stays begun, and the replay ends.
func (r *replay) published(ctx context.Context, batch []pendingReplay, sent []sending) error {
	var done, undone, unknown, twice []pendingReplay
	var why error
	for i, s := range sent {
		switch {
		case s.err == nil:
			done = append(done, batch[i])
			if s.twice || batch[i].late {
				twice = append(twice, batch[i])
				r.sum.twice(batch[i].letter.Place)
			}
		case errors.Is(s.err, broker.ErrRefused) && !s.twice:
			undone = append(undone, batch[i])
			r.sum.refuse(batch[i].letter.Place, s.err)
		default:
			unknown, why = append(unknown, batch[i]), s.err
		}
	}
	if err := errors.Join(r.write(ctx, stepDone, done, twice...), r.write(ctx, stepUndone, undone)); err != nil {
		return err
	}
	r.last = done
	r.sum.Replayed += int64(len(done))
	r.sum.Refused += int64(len(undone))
	r.progress(len(done) + len(undone))
	if len(unknown) > 0 {
		return r.unconfirmed(ctx, unknown, why)
	}
	return nil
}

// unconfirmed is what ends a replay: letters of which it does not know whether they were stored. Another replay that has begun
// meanwhile may have looked for them, in vain. Then nobody does so again, and they may have been stored since: they are named.
func (r *replay) unconfirmed(ctx context.Context, letters []pendingReplay, why error) error {
	err := fmt.Errorf("%d letters were not confirmed; the next replay finds out whether they were stored: %w", len(letters), why)
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.l.cfg.ConfirmTimeout)
	defer cancel()
	taken := r.taken(look)
	if errors.Is(taken, ErrTaken) { // else it is well, or the broker cannot be reached for this either
		err = fmt.Errorf("%d letters were not confirmed: %w; %w", len(letters), why, taken)
	}
	var twice []pendingReplay
	for _, x := range letters {
		k := r.known.of(x.letter.Place)
		looked := (k.open == nil || k.open.run != r.j.run) && (k.done == nil || k.done.of != r.j.run)
		if x.late || looked {
			twice = append(twice, x)
			r.sum.twice(x.letter.Place)
		}
	}
	if len(twice) == 0 {
		return err
	}
	return errors.Join(err, r.j.append(ctx, record{Step: stepUndone, Twice: byDestination(twice)}))
}
