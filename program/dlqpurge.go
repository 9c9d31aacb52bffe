package program

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/longshoremq/longshore/deadletters"
	"github.com/spf13/cobra"
)

// A dlqPurge is the command purge.
type dlqPurge struct {
	target              dlqTarget
	filter              deadletters.Filter
	yes, dryRun, partly bool
	all                 bool
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
			"--partly is set.",
		Example: "  longshore dlq purge -c c.yaml --state replayed\n  longshore dlq purge --topic orders-dead --until 720h --yes\n" +
			"  longshore dlq purge --subject dead.orders --all --yes",
		Args: func(cmd *cobra.Command, args []string) (err error) {
			p.filter, err = chosen.filter(cmd, args, time.Now())
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
	if plan.Behind > 0 {
		why := fmt.Errorf("%d of %s stand behind others that are to stay, the first is %s: Kafka deletes a log only from its beginning",
			plan.Behind, lettersText(plan.Letters), deadletters.FormatPlace(plan.First))
		if !p.partly && !p.dryRun {
			return fmt.Errorf("nothing was deleted: %w; choose those before them too, or delete the other %d with --partly", why,
				len(plan.Places))
		}
		fmt.Fprintln(stdout, why)
	}
	if len(plan.Places) == 0 {
		fmt.Fprintln(stdout, "no letter to delete")
		return nil
	}
	what := fmt.Sprintf("%s of %s", lettersText(int64(len(plan.Places))), escape(box.topic))
	if plan.Waiting > 0 {
		what += fmt.Sprintf(" (of those chosen %d were never replayed, or perhaps not)", plan.Waiting)
	}
	if p.dryRun {
		fmt.Fprintf(stdout, "would delete %s\n", what)
		return nil
	}
	if !p.yes && !agreed(ctx, stdin, stdout, "Delete "+what+"? It cannot be undone. [y/N] ") {
		return errors.New("nothing was deleted")
	}
	if err := box.Purge(ctx, plan); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "deleted %s\n", lettersText(int64(len(plan.Places))))
	return nil
}

// agreed asks, and takes only y or yes for it. A signal is no.
func agreed(ctx context.Context, stdin io.Reader, stdout io.Writer, question string) bool {
	fmt.Fprint(stdout, question)
	line, _ := until(ctx, func() (string, error) { return bufio.NewReader(stdin).ReadString('\n') })
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}
