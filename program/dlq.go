package program

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/deadletters"
	"github.com/spf13/cobra"
)

func newDLQ(p Parts) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "List, show, edit, replay and purge dead letters",
		Long: "Works with the dead letters of a consumer, beside whoever reads their topic: it joins no group and makes no durable. " +
			"Which ones: those of\n" +
			"a configuration file's consumer (-c, --consumer where several have some, and --topic or --subject where it has several " +
			"targets), or a\n" +
			"topic of Kafka (--topic) or a subject of NATS (--subject). A letter is named by partition/offset on Kafka, and by its " +
			"sequence in the\n" +
			"stream on JetStream.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDLQList(p), newDLQShow(p), newDLQEdit(p), newDLQReplay(p), newDLQPurge(p))
	return cmd
}

// letterFlags choose letters.
type letterFlags struct {
	handler, class, since, until, key, origin, state string
}

func (l *letterFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&l.handler, "handler", "", "only those that this consumer gave up")
	f.StringVar(&l.class, "class", "", "only with this class of error: "+orText(consumer.FailureClasses()))
	f.StringVar(&l.since, "since", "", "only those that failed at or after it: a time as in RFC 3339, or how long ago, as 2h30m")
	f.StringVar(&l.until, "until", "", "only those that failed before it")
	f.StringVar(&l.key, "key", "", "only with this key")
	f.StringVar(&l.origin, "origin", "", "only those that came from this topic or subject")
	f.StringVar(&l.state, "state", "", "only waiting, replayed or uncertain ones")
	_ = cmd.RegisterFlagCompletionFunc("class", cobra.FixedCompletions(consumer.FailureClasses(),
		cobra.ShellCompDirectiveNoFileComp))
}

// filter reads the flags, and places from the arguments. It reports all mistakes at once.
func (l *letterFlags) filter(cmd *cobra.Command, args []string, now time.Time) (f deadletters.Filter, err error) {
	f = deadletters.Filter{Handler: l.handler, Class: l.class, Topic: l.origin, State: deadletters.State(l.state)}
	var errs []error
	moment := func(flag, value string) (t time.Time) {
		if value == "" {
			return t
		}
		if ago, err := time.ParseDuration(value); err == nil && ago >= 0 {
			return now.Add(-ago)
		}
		t, err := time.Parse(time.RFC3339, value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is %q, want a time as 2006-01-02T15:04:05Z, or how long ago, as 2h30m", flag, value))
		}
		return t
	}
	f.Since, f.Until = moment("--since", l.since), moment("--until", l.until)
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		errs = append(errs, errors.New("--since is not before --until: no letter is between them"))
	}
	if cmd.Flags().Changed("key") {
		f.Key = []byte(l.key)
	}
	switch f.State {
	case "", deadletters.Waiting, deadletters.Replayed, deadletters.Uncertain:
	default:
		errs = append(errs, fmt.Errorf("--state is %q, want waiting, replayed or uncertain", l.state))
	}
	if classes := consumer.FailureClasses(); f.Class != "" && !slices.Contains(classes, f.Class) {
		errs = append(errs, fmt.Errorf("--class is %q, want %s", f.Class, orText(classes)))
	}
	for _, a := range args {
		p, err := deadletters.ParsePlace(a)
		errs = append(errs, err)
		f.Places = append(f.Places, p)
	}
	return f, errors.Join(errs...)
}

// orText is "a, b or c".
func orText(list []string) string {
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// onePlace reads the one argument of show and edit.
func onePlace(args []string) (p broker.Place, err error) {
	if len(args) != 1 {
		return p, errors.New("name one letter, as dlq list shows it: partition/offset, or a sequence")
	}
	return deadletters.ParsePlace(args[0])
}

// asUsage makes an error the caller's.
func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// placesText lists letters, the first of them by name.
func placesText(ps []broker.Place) string {
	const most = 10
	var names []string
	for _, p := range ps[:min(most, len(ps))] {
		names = append(names, deadletters.FormatPlace(p))
	}
	if len(ps) > most {
		names = append(names, fmt.Sprintf("and %d more (--json names all)", len(ps)-most))
	}
	return strings.Join(names, ", ")
}

// lettersText counts them.
func lettersText(n int64) string {
	if n == 1 {
		return "1 letter"
	}
	return fmt.Sprintf("%d letters", n)
}
