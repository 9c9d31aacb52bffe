package program

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/deadletters"
	"github.com/spf13/cobra"
)

// A dlqPurge is the command purge.
type dlqPurge struct {
	target              dlqTarget
	filter              deadletters.Filter
	yes, dryRun, partly bool
	all, asJSON         bool
}

func newDLQPurge(parts Parts) *cobra.Command {
	p, chosen := &dlqPurge{target: dlqTarget{adapters: parts.adapters()}}, &letterFlags{}
	cmd := &cobra.Command{
		Use:   "purge [LETTER ...]",
		Short: "Delete dead letters for good",
		Long: "Deletes dead letters, or those that the flags choose, after asking. It cannot be undone. With --yes nothing is asked, " +
			"and all of them\ngo only with --all. JetStream deletes single " +
			"messages. Kafka cuts a\n" +
			"partition's log off at its beginning and nowhere else: letters behind one that is to stay cannot be deleted there, which " +
			"is refused unless\n" +
			"--partly is set. With --json an object on stdout says what was deleted; the question goes to stderr.",
		Example: "  longshore dlq purge -c c.yaml --state replayed\n  longshore dlq purge --topic orders-dead --until 720h --yes\n" +
			"  longshore dlq purge --subject dead.orders --all --yes",
		Args: func(cmd *cobra.Command, args []string) (err error) {
			p.filter, err = chosen.filter(cmd, args, time.Now())
			if p.partly {
				p.target.ofKafka = "--partly"
			}
			return asUsage(errors.Join(p.target.check(cmd), err, p.checkAll(cmd, args)))
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	p.target.flags(cmd)
	chosen.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&p.yes, "yes", false, "do not ask")
	f.BoolVar(&p.all, "all", false, "delete every letter: with --yes, where nothing is chosen")
	f.BoolVar(&p.partly, "partly", false, "on Kafka: delete those that can be deleted")
	f.BoolVar(&p.dryRun, "dry-run", false, "say what would be deleted, and delete nothing")
	f.BoolVar(&p.asJSON, "json", false, "print what was deleted as JSON")
	return cmd
}

// checkAll: a script whose list of letters, or of flags, is empty (xargs longshore dlq purge --yes) means none of them, not all.
func (p *dlqPurge) checkAll(cmd *cobra.Command, args []string) error {
	chosen := setFlags(cmd, "handler", "class", "since", "until", "key", "origin", "state")
	if len(args) > 0 {
		chosen = append(chosen, "a letter")
	}
	switch {
	case p.all && len(chosen) > 0:
		return fmt.Errorf("--all and %s are set: one of them", chosen[0])
	case p.yes && !p.all && !p.dryRun && len(chosen) == 0:
		return errors.New("--yes is set and nothing is chosen, which would delete every letter unasked: choose some, or set --all")
	}
	return nil
}

func (p *dlqPurge) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	box, err := p.target.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.end(stderr)) }()
	if err := box.named(ctx, p.filter.Places); err != nil {
		return err
	}
	box.narrow(&p.filter)
	plan, err := box.PlanPurge(ctx, p.filter)
	if err != nil {
		return err
	}
	deleted := plan.Places
	if err = p.carryOut(ctx, box, plan, stdin, p.people(stdout, stderr)); err != nil {
		deleted = nil
	}
	if p.asJSON && (err == nil || errors.Is(err, errNotPurged)) {
		return errors.Join(err, writeJSON(stdout, p.summary(box.topic, plan, deleted)))
	}
	return err
}

// people is where the question and what is said to people go: with --json nothing but that is on stdout.
func (p *dlqPurge) people(stdout, stderr io.Writer) io.Writer {
	if p.asJSON {
		return stderr
	}
	return stdout
}

// errNotPurged says that nothing was tried.
var errNotPurged = errors.New("nothing was deleted")

// carryOut asks, where that is wanted, and deletes.
func (p *dlqPurge) carryOut(ctx context.Context, box *deadBox, plan deadletters.PurgePlan, stdin io.Reader, out io.Writer) error {
	if plan.Behind > 0 {
		why := fmt.Errorf("%d of %s stand behind others that are to stay, the first is %s: Kafka deletes a log only from its beginning",
			plan.Behind, lettersText(plan.Letters), deadletters.FormatPlace(plan.First))
		if !p.partly && !p.dryRun {
			return fmt.Errorf("%w: %w; choose those before them too, or delete the other %d with --partly", errNotPurged, why,
				len(plan.Places))
		}
		fmt.Fprintln(out, why)
	}
	if len(plan.Places) == 0 {
		p.say(out, "no letter to delete")
		return nil
	}
	what := fmt.Sprintf("%s of %s", lettersText(int64(len(plan.Places))), escape(box.topic))
	if plan.Waiting > 0 {
		what += fmt.Sprintf(" (%d not replayed, as far as is known)", plan.Waiting)
	}
	if p.dryRun {
		p.say(out, "would delete "+what)
		return nil
	}
	if !p.yes && !agreed(ctx, stdin, out, "Delete "+what+"? It cannot be undone. [y/N] ") {
		return errNotPurged
	}
	if err := box.Purge(ctx, plan); err != nil {
		return err
	}
	p.say(out, "deleted "+lettersText(int64(len(plan.Places))))
	return nil
}

// say tells people what the JSON says.
func (p *dlqPurge) say(out io.Writer, text string) {
	if !p.asJSON {
		fmt.Fprintln(out, text)
	}
}

// A purgeJSON is what --json prints.
type purgeJSON struct {
	Topic       string   `json:"topic"`
	DryRun      bool     `json:"dry_run"`
	Chosen      int64    `json:"chosen"`
	Deleted     int      `json:"deleted"` // with dry_run: would be
	NotReplayed int64    `json:"not_replayed"`
	Behind      int64    `json:"behind"`
	FirstBehind string   `json:"first_behind,omitempty"`
	Letters     []string `json:"letters"` // those deleted
}

func (p *dlqPurge) summary(topic string, plan deadletters.PurgePlan, deleted []broker.Place) purgeJSON {
	j := purgeJSON{
		Topic: topic, DryRun: p.dryRun, Chosen: plan.Letters, Deleted: len(deleted), Behind: plan.Behind, Letters: []string{},
	}
	if plan.Behind > 0 {
		j.FirstBehind = deadletters.FormatPlace(plan.First)
	}
	if len(deleted) > 0 {
		j.NotReplayed = plan.Waiting
	}
	for _, one := range deleted {
		j.Letters = append(j.Letters, deadletters.FormatPlace(one))
	}
	return j
}

// agreed asks, and takes only y or yes for it. A signal is no.
func agreed(ctx context.Context, stdin io.Reader, stdout io.Writer, question string) bool {
	fmt.Fprint(stdout, question)
	line, _ := until(ctx, func() (string, error) { return bufio.NewReader(stdin).ReadString('\n') })
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}
