package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/spf13/cobra"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

// Main runs the command that os.Args name, with the handlers of r in configuration files, and ends the process with its exit
// code: it does not return. The first SIGINT or SIGTERM drains, the second stops at once. It is the last call of a main function.
func Main(r *handlers.Registry) { MainWith(Parts{Handlers: r}) }

// MainWith is Main with more parts of your own than handlers. Parts that contradict each other are told, and the exit code is 2.
func MainWith(p Parts) {
	p = p.withDefaults()
	ctx, stop := stopOnSignal()
	var err error
	if wrong := p.validate(); wrong != nil {
		err = usageError{wrong}
	} else {
		err = newRoot(p).ExecuteContext(ctx)
	}
	stop()
	code := report(err, visible{out: os.Stderr})
	handlers.KillCommands() // those of handlers that did not return
	os.Exit(code)
}

// report tells what went wrong, unless that was done, and says how to exit.
func report(err error, stderr io.Writer) (code int) {
	if err == nil {
		return 0
	}
	var logged loggedError
	var found *config.Findings
	switch {
	case errors.As(err, &logged):
	case errors.Is(err, errStopped): // whatever it was told to read is not wrong
		fmt.Fprintln(stderr, "longshore:", errStopped)
		return exitFailed
	case errors.As(err, &found): // a line each, as compilers do
		fmt.Fprintln(stderr, err)
		mistakes := "1 mistake"
		if n := len(found.List); n > 1 {
			mistakes = fmt.Sprintf("%d mistakes", n)
		}
		fmt.Fprintf(stderr, "longshore: %s: %s\n", found.File, mistakes)
	default:
		fmt.Fprintln(stderr, "longshore:", err)
	}
	var use usageError
	if errors.As(err, &use) {
		return exitUsage
	}
	return exitFailed
}

// A usageError is the caller's: wrong flags, arguments or configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// A loggedError was told in the log.
type loggedError struct{ error }

func (e loggedError) Unwrap() error { return e.error }

func newRoot(p Parts) *cobra.Command {
	var unwritten error // why not all that a command printed could be written
	root := &cobra.Command{
		Use:     "longshore",
		Short:   "Background event processing on Kafka and NATS JetStream",
		Version: readVersion().String(),
		Long: "Longshore pulls messages from a broker, runs handlers on them in a pool of workers that sizes itself, and acks each " +
			"message after its\n" +
			"handler is done.\n\nExit codes: 0 done, 1 failed at work, 2 wrong use or configuration, 130 and 143 stopped by force (a " +
			"second SIGINT or SIGTERM).",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { // of whichever command runs
			out, errs := cmd.OutOrStdout(), cmd.ErrOrStderr()
			cmd.SetOut(visible{raw(out), &unwritten})
			cmd.SetErr(visible{out: raw(errs)})
			return asUsage(errors.Join(emptyFlags(cmd)...))
		},
		// Where nothing else went wrong: a full disk has half of a list, and nobody would know.
		PersistentPostRunE: func(*cobra.Command, []string) error { return unwritten },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newRun(p), newProduce(), newLag(p), newTop(p), newScaler(p), newDLQ(p), newConfig(p), newDemo(), newVersion(),
		newMan())
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	refuseArgs(root)
	return root
}

// refuseArgs has cobra's own commands, completion and help, and those below the first refuse arguments as all others do:
// completion bsh, into a file, was help, and done.
func refuseArgs(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.Args, cmd.RunE = noArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			for _, shell := range cmd.Commands() {
				shell.Args = noArgs
			}
		case "help":
			cmd.Args = aCommand
		}
	}
}

// aCommand wants arguments that name a command, or none, as a usage error.
func aCommand(cmd *cobra.Command, args []string) error {
	if _, rest, err := cmd.Root().Find(args); err != nil || len(rest) > 0 {
		return usageError{fmt.Errorf("unknown command %q for %q", strings.Join(args, " "), cmd.CommandPath())}
	}
	return nil
}

// noArgs refuses arguments, as a usage error. Of a command that has others below it, an argument is a slip in the name of one.
func noArgs(cmd *cobra.Command, args []string) error {
	switch n := len(args); {
	case n == 0:
		return nil
	case cmd.HasAvailableSubCommands():
		return usageError{cobra.NoArgs(cmd, args)}
	case n == 1:
		return usageError{fmt.Errorf("%s takes no arguments, 1 is given: %s", cmd.CommandPath(), args[0])}
	default:
		return usageError{fmt.Errorf("%s takes no arguments, %d are given: %s", cmd.CommandPath(), n, strings.Join(args, " "))}
	}
}

// oneArg wants the one argument that the command's Use names, as a usage error.
func oneArg(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	_, name, _ := strings.Cut(cmd.Use, " ")
	return usageError{fmt.Errorf("want one %s, %d are given: %s %s", name, len(args), cmd.CommandPath(), name)}
}

// sameSignal is how soon after the first a signal is the same one: who runs another program under a time limit, or passes signals
// on, sends it to its child and to the child's group, which is two at once (timeout 1h longshore run).
const sameSignal = 100 * time.Millisecond

// stopOnSignal ends the context at the first SIGINT, SIGTERM or SIGHUP, which asks for a drain; a second SIGINT or SIGTERM ends
// the process at once. A second SIGHUP does not: a terminal that closes sends it twice, by the shell and by the kernel. Under
// nohup SIGHUP stays ignored.
func stopOnSignal() (context.Context, func()) {
	words := &lastWords{}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), lastWordsKey{}, words))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		heed(signals, cancel, func(second os.Signal) {
			words.speak(second)
			handlers.KillCommands()
			os.Exit(128 + int(second.(syscall.Signal)))
		})
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel()
		<-done
	}
}

// heed drains at the first signal, and calls force at each one that is a second, until signals is closed.
func heed(signals <-chan os.Signal, drain func(), force func(os.Signal)) {
	if _, ok := <-signals; !ok {
		return
	}
	drain()
	first := time.Now()
	for second := range signals {
		if second != syscall.SIGHUP && time.Since(first) >= sameSignal {
			force(second)
		}
	}
}

// writeOn lets a write to standard output or error fail where whoever read it is gone: Go ends the process at once then, as other
// programs of a pipe end. A Ctrl-C of `longshore run 2>&1 | tee log` ends tee, too, and the first line about the drain would end
// longshore in the middle of it. It is a channel that nobody reads, for what is ignored is ignored by the commands of exec, too.
// ctx is the command's; where that is not of Main, the process is somebody else's.
func writeOn(ctx context.Context) {
	if _, ours := ctx.Value(lastWordsKey{}).(*lastWords); ours {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
}
