package program

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/deadletters"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/spf13/cobra"
)

// A dlqReplay is the command replay.
type dlqReplay struct {
	target  dlqTarget
	chosen  letterFlags
	replay  deadletters.Replay
	handler bool
	putOff  time.Duration
	asJSON  bool
	order   consumer.Order // of the file's consumer; empty: none
	parts   Parts
}

func newDLQReplay(p Parts) *cobra.Command {
	d := &dlqReplay{parts: p, target: dlqTarget{adapters: p.adapters()}}
	cmd := &cobra.Command{
		Use:   "replay [LETTER ...]",
		Short: "Replay dead letters to where they came from, or to a handler",
		Long: "Publishes dead letters again, each confirmed, to --to, or to where they say that they came from, if a consumer of the " +
			"file reads that (whoever\n" +
			"may publish dead letters may write anything into them); or handles them in this process with the routes of the file's " +
			"consumer\n" +
			"(--to-handler). Each letter is replayed once: what was replayed is written down beside the\n" +
			"dead letters, so the same command goes on where it was stopped or killed. Letters that were on their way then are looked " +
			"for in their topic;\n" +
			"those of which it cannot be known whether they arrived are published again, and named. The letters themselves stay: see " +
			"purge.\n" +
			"A replayed message says how often it was replayed; beyond --max-replays it is refused. Exits with 1 if not all were " +
			"replayed.\n" +
			"A letter is handled when it is replayed: with an order after the newer messages of its key that were handled meanwhile.",
		Example: "  longshore dlq replay -c c.yaml --class timeout --dry-run\n  longshore dlq replay -c c.yaml --rate 50\n  " +
			"longshore dlq replay --topic orders-dead --to orders-repair 0/17 0/18",
		Args: func(cmd *cobra.Command, args []string) error {
			_, err := d.chosen.filter(cmd, args, time.Now())
			return asUsage(errors.Join(d.target.check(cmd), err, d.check()))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			d.replay.Filter, _ = d.chosen.filter(cmd, args, time.Now()) // was checked
			return d.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	d.target.flags(cmd)
	d.chosen.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&d.replay.To, "to", "", "topic or subject to publish to (default with -c where each letter came from)")
	f.BoolVar(&d.handler, "to-handler", false, "handle the letters in this process, with the routes of the file's consumer")
	f.IntVar(&d.replay.Workers, "workers", 1, "how many are handled at once with --to-handler")
	f.DurationVar(&d.putOff, "put-off", putOffMost, "how long a letter is put off with --to-handler, all told, by a handler that "+
		"defers it, or by a circuit breaker")
	f.Float64Var(&d.replay.Rate, "rate", 100, "letters per second; 0: as fast as they are confirmed")
	f.Int64Var(&d.replay.Limit, "limit", 0, "the most letters to replay, without those that are refused before; 0: all")
	f.IntVar(&d.replay.MaxReplays, "max-replays", 5, "how often a message may be replayed, all told")
	f.BoolVar(&d.replay.Again, "again", false, "replay those that were replayed already, too")
	d.byFlag(cmd)
	f.BoolVar(&d.replay.DryRun, "dry-run", false, "say what would be replayed, and change nothing")
	f.BoolVar(&d.asJSON, "json", false, "print the summary as JSON, and with --dry-run the letters, an object a line")
	return cmd
}

// byFlag is who replays, for the journal; on a shared machine and in a pod only they know.
func (d *dlqReplay) byFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.replay.By, "by", "", "who replays, for dlq show and list --json (default the user, at this machine)")
}

// whoami is the user of this process, and the machine; who became root by sudo is who they were.
func whoami() string {
	name := cmp.Or(os.Getenv("SUDO_USER"), os.Getenv("USER"))
	if u, err := user.Current(); name == "" && err == nil {
		name = u.Username
	}
	host, _ := os.Hostname() // empty where it is not known
	return cmp.Or(name, strconv.Itoa(os.Getuid())) + "@" + host
}

// check reports all that is wrong with the flags at once.
func (d *dlqReplay) check() error {
	var f broker.Findings
	o := d.replay
	f.Check(o.Rate >= 0 && o.Rate <= 1e7, "--rate", "is %v, want 0 to 10,000,000", o.Rate)
	f.Check(o.Limit >= 0, "--limit", "is %d, negative", o.Limit)
	f.Check(o.MaxReplays >= 1, "--max-replays", "is %d, want at least 1", o.MaxReplays)
	f.Check(o.Workers >= 1, "--workers", "is %d, want at least 1", o.Workers)
	f.Check(o.Workers <= 1 || d.handler, "--workers", "is set and --to-handler is not: what is published goes out by --rate")
	f.Check(d.putOff >= 0, "--put-off", "is %v, negative", d.putOff)
	f.Check(d.putOff == putOffMost || d.handler, "--put-off", "is set and --to-handler is not: no handler puts a letter off")
	f.Check(!d.handler || d.target.file != "", "--to-handler", "is set and --config is not: the handler is the file's")
	f.Check(!d.handler || o.To == "", "--to", "and --to-handler are set: one of them")
	return errors.Join(f.Err(), d.checkTo())
}

// checkTo is for replay and edit: a letter says itself where it came from, and only a file says which of that to believe.
func (d *dlqReplay) checkTo() error {
	if d.replay.To == "" && d.target.file == "" && !d.handler {
		return errors.New("--to is missing: without a file nothing says which topics a letter may name as where it came from " +
			"(--origin chooses by that)")
	}
	if err := broker.CheckDestination(d.replay.To); err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	return nil
}

// allow says which topics a letter may name as where it came from: those that the file's consumers read from the same broker.
// nil: it is not asked.
func (d *dlqReplay) allow(ctx context.Context, box *deadBox) (func(topic string) bool, error) {
	if box.doc == nil || d.replay.To != "" || d.handler {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.target.timeout)
	defer cancel()
	allowed, err := origins(ctx, &box.doc.File, box.consumer)
	if err != nil {
		return nil, fmt.Errorf("finding out what may be replayed to where it came from (--to names another place): %w", err)
	}
	return allowed, nil
}

// origins says which topics the consumers of a file read from the same broker as c, of those that can be published to at all: a
// pattern takes names that are none.
func origins(ctx context.Context, f *config.File, c *config.Consumer) (func(topic string) bool, error) {
	streams := map[*config.NATS][]string{}
	for _, n := range f.WholeStreams(c) {
		subjects, err := streamSubjects(ctx, n.Adapter(embeddedURL(f.Embedded)))
		if err != nil {
			return nil, err
		}
		streams[n] = subjects
	}
	return func(topic string) bool {
		return mayPublish(c.Source.Kafka != nil, topic) && f.Takes(c, topic, streams)
	}, nil
}

// streamSubjects are those of a source's stream; none where there is no such stream.
func streamSubjects(ctx context.Context, n natsbroker.Config) ([]string, error) {
	view, err := natsbroker.NewLogView(natsbroker.LogViewConfig{Connection: n.Connection, Domain: n.Domain})
	if err != nil {
		return nil, err
	}
	defer view.Close()
	subjects, err := view.Subjects(ctx, n.Stream)
	if errors.Is(err, broker.ErrNoTopic) {
		return nil, nil
	}
	return subjects, err
}

func (d *dlqReplay) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	box, err := d.target.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.end(stderr)) }()
	o := d.replay
	o.By = cmp.Or(o.By, whoami())
	if err := errors.Join(box.mayReplay(d.replay.To), box.named(ctx, o.Filter.Places)); err != nil {
		return err
	}
	box.narrow(&o.Filter)
	d.order = box.order()
	if o.Allow, err = d.allow(ctx, box); err != nil {
		return err
	}
	if d.handler {
		handle, end, err := d.routes(ctx, box, stderr)
		if err != nil {
			return err
		}
		defer end()
		o.Handle, o.HandlerName = handle, "handler of "+box.name
	}
	if o.DryRun {
		o.OnLetter = func(l *deadletters.Letter, to string, refused error) { d.would(stdout, l, to, refused) }
	}
	writeOn(ctx) // what is on its way is finished
	var shown *progress
	o.OnProgress = func(done, of int64) {
		if shown == nil {
			shown = newProgress(stderr, of)
		}
		shown.set(done)
	}
	sum, err := box.Replay(ctx, o)
	if shown != nil {
		shown.close()
	}
	return errors.Join(err, d.tell(stdout, sum), outcome(sum))
}

// routes is the consumer's handler as run would have it, with its middleware and its timeout.
func (d *dlqReplay) routes(ctx context.Context, box *deadBox,
	stderr io.Writer) (handle func(context.Context, *broker.Message) error, end func(), err error) {
	ctx, halt := context.WithCancelCause(ctx)
	lines := logWriter(box.doc.File.Log, stderr)
	a := assembled(&assembly{doc: box.doc, parts: d.parts, log: loggerTo(box.doc.File.Log, lines), lines: lines, halt: halt,
		unopened: true})
	end = func() { halt(nil); _ = a.close() }
	if err := box.doc.Err(); err != nil {
		end()
		return nil, nil, usageError{err}
	}
	a.sends.begin()
	again := ""
	if d.replay.Again { // its outputs are not those of the replay before
		again = rand.Text()
	}
	for _, m := range a.members {
		if m.name == box.name {
			handle = newTurns(ctx, m, box.consumer.Timeout, d.putOff, again).handle
		}
	}
	return handle, end, nil
}

// would says of a letter what a replay would do.
func (d *dlqReplay) would(w io.Writer, l *deadletters.Letter, to string, refused error) {
	name := deadletters.FormatPlace(l.Place)
	switch {
	case d.asJSON && refused != nil:
		_ = writeJSON(w, map[string]string{"letter": name, "refused": refused.Error()})
	case d.asJSON:
		_ = writeJSON(w, map[string]string{"letter": name, "to": to})
	case refused != nil:
		fmt.Fprintf(w, "%s is refused: %s\n", name, escape(refused.Error()))
	default:
		fmt.Fprintf(w, "%s would go to %s\n", name, escape(to))
	}
}

// outcome is an error where not all that was chosen was replayed.
func outcome(s deadletters.Summary) error {
	switch {
	case s.Stopped:
		return errors.New("stopped: the same command goes on from here")
	case s.Refused > 0 || s.Failed > 0:
		return fmt.Errorf("%d of %s not replayed", s.Refused+s.Failed, lettersText(s.Chosen))
	}
	return nil
}

// tell prints the summary.
func (d *dlqReplay) tell(w io.Writer, s deadletters.Summary) error {
	if d.asJSON {
		return writeJSON(w, summaryOf(s, d.replay.DryRun))
	}
	did := "replayed"
	if d.replay.DryRun {
		did = "would replay"
	}
	fmt.Fprintf(w, "%s %d of %s; %d replayed before, %d refused, %d failed\n", did, s.Replayed, lettersText(s.Chosen), s.Before,
		s.Refused, s.Failed)
	d.details(w, s)
	d.late(w, s)
	return nil
}

// late says before a replay that it does not keep the order that the file asks for.
func (d *dlqReplay) late(w io.Writer, s deadletters.Summary) {
	if d.replay.DryRun && d.order != "" && s.Replayed > 0 {
		fmt.Fprintf(w, "order is %s: they are handled after newer messages of their %[1]s that were handled meanwhile\n", d.order)
	}
}

// details prints what a summary names.
func (d *dlqReplay) details(w io.Writer, s deadletters.Summary) {
	if !d.replay.DryRun { // it has told of each
		for i, r := range s.Refusals {
			if i == 20 {
				fmt.Fprintf(w, "  and %d more (--json names them)\n", len(s.Refusals)-i)
				break
			}
			fmt.Fprintf(w, "  %s: %s\n", deadletters.FormatPlace(r.Place), shown([]byte(r.Err.Error()), 300))
		}
	}
	for _, list := range []struct {
		places []broker.Place
		what   string
	}{
		{s.Found, "on their way when an earlier replay was stopped, had arrived, not published again"},
		{s.Absent, "on their way when an earlier replay was stopped, had not arrived, waiting again"},
		{s.LostEdits, "of those, edited copies that were not published: edit them again"},
		{s.PerhapsTwice, "PERHAPS THERE TWICE: nobody can tell whether they had arrived before"},
	} {
		if n := len(list.places); n > 0 {
			fmt.Fprintf(w, "%s (%d): %s\n", list.what, n, placesText(list.places))
		}
	}
}

// A replayJSON is the summary as JSON.
type replayJSON struct {
	Run          string        `json:"run,omitempty"`
	DryRun       bool          `json:"dry_run"`
	Chosen       int64         `json:"chosen"`
	Replayed     int64         `json:"replayed"`
	Before       int64         `json:"replayed_before"`
	Refused      int64         `json:"refused"`
	Failed       int64         `json:"failed"`
	Stopped      bool          `json:"stopped"`
	Found        []string      `json:"found_arrived"`
	Absent       []string      `json:"found_absent"`
	LostEdits    []string      `json:"lost_edits"`
	PerhapsTwice []string      `json:"perhaps_twice"`
	Refusals     []refusalJSON `json:"refusals"`
	Unreadable   int64         `json:"unreadable_records"`
	Cut          bool          `json:"journal_cut"`
}

type refusalJSON struct {
	Letter string `json:"letter"`
	Error  string `json:"error"`
}

func summaryOf(s deadletters.Summary, dry bool) replayJSON {
	names := func(ps []broker.Place) []string {
		list := make([]string, 0, len(ps))
		for _, p := range ps {
			list = append(list, deadletters.FormatPlace(p))
		}
		return list
	}
	j := replayJSON{
		Run: s.Run, DryRun: dry, Chosen: s.Chosen, Replayed: s.Replayed, Before: s.Before, Refused: s.Refused, Failed: s.Failed,
		Stopped: s.Stopped,
		Found:   names(s.Found), Absent: names(s.Absent), LostEdits: names(s.LostEdits), PerhapsTwice: names(s.PerhapsTwice),
		Refusals:   []refusalJSON{},
		Unreadable: s.Unreadable.Count, Cut: s.Unreadable.Cut,
	}
	for _, r := range s.Refusals {
		j.Refusals = append(j.Refusals, refusalJSON{deadletters.FormatPlace(r.Place), r.Err.Error()})
	}
	return j
}
