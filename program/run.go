package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

func newRun(p Parts) *cobra.Command {
	var file string
	scaler := &scalerFlags{}
	cmd := &cobra.Command{
		Use:   "run -c FILE",
		Short: "Run the consumers of a configuration file",
		Long: "Runs all consumers of a configuration file until a signal. Consumers without a url get a NATS JetStream server inside " +
			"this process.\n" +
			"The first SIGINT, SIGTERM or SIGHUP stops fetching, gives back what was not started and lets running handlers end; a " +
			"second SIGINT or\n" +
			"SIGTERM stops at once with 130 or 143. No signal reads the file again: restart. If one consumer fails, all drain, and the " +
			"exit code is 1. Mistakes in the file are all named at once, with exit code 2.\n" +
			"Logs go to stderr: JSON, or text on a terminal.",
		Example: "  longshore config example > c.yaml\n  longshore run -c c.yaml",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && file == "" {
				return usageError{fmt.Errorf("run takes no arguments; name the file with -c: longshore run -c %s", args[0])}
			}
			return noArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usageError{errors.New("run needs --config FILE; longshore config example prints one")}
			}
			scaler.file = file
			if err := scaler.checkBeside(); err != nil {
				return usageError{err}
			}
			return runFile(cmd.Context(), p, file, scaler, cmd.InOrStdin(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration file; - is the standard input")
	scaler.flagsBeside(cmd)
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

// runFile runs the consumers of a file until ctx ends. What fails from here on is logged.
func runFile(ctx context.Context, p Parts, file string, scaler *scalerFlags, stdin io.Reader, stderr io.Writer) error {
	doc, err := loadNamed(ctx, file, stdin, p.adapters())
	switch {
	case errors.Is(err, errStopped):
		return nil // a signal came before anything ran
	case err != nil:
		return usageError{err}
	}
	writeOn(ctx)
	log, lines := p.logger(doc.File.Log, stderr)
	defer adoptLog(log)()
	ctx, halt := context.WithCancelCause(ctx)
	defer halt(nil)
	a := assemble(doc, p, log, lines, halt)
	if err := doc.Err(); err != nil {
		return usageError{errors.Join(err, a.close())}
	}
	for _, w := range doc.Warnings {
		log.Warn().Str("event", "config_warning").Int("line", w.Line).Str("path", w.Path).Msg(w.Problem)
	}
	a.sends.begin()
	a.tellStarted()
	onForcedStop(ctx, a.tellForced)
	if err := errors.Join(a.run(ctx, scaler), a.close()); err != nil {
		log.Error().Str("event", "failed").Err(err).Send()
		return loggedError{err}
	}
	log.Info().Str("event", "stopped").Send()
	return nil
}

// tellStarted logs what runs here: who looks at a log of yesterday sees what has changed since.
func (a *assembly) tellStarted() {
	v := readVersion()
	e := a.log.Info().Str("event", "started").Str("version", v.Version)
	if v.Revision != "" {
		e = e.Str("revision", v.Revision).Bool("modified", v.Modified)
	}
	e.Str("file", a.doc.Name).Str("config", a.doc.Digest).Send()
}

// tellForced logs that a second signal ends the process, and what it leaves behind.
func (a *assembly) tellForced(s os.Signal) {
	inFlight := int64(0)
	for _, m := range a.members {
		inFlight += m.consumer.Stats().InFlight
	}
	a.log.Warn().Str("event", "forced_stop").Stringer("signal", s).Int64("in_flight", inFlight).
		Msg("a second signal: stopped at once; what is in flight comes again")
}

// run runs everything until ctx ends or a consumer fails, then drains all. The scaler asks the embedded server, so it begins when
// that has its streams, and ends before it.
func (a *assembly) run(ctx context.Context, scaler *scalerFlags) error {
	if a.embeds {
		e, err := a.startEmbedded(ctx)
		if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), context.Canceled) {
			return nil // a signal came before anything ran
		}
		if err != nil {
			return err
		}
		defer e.stop()
	}
	served, err := a.serve(ctx)
	if err != nil {
		return err
	}
	defer a.tellStopping(ctx)()
	scaled := scaler.beside(ctx, a)
	group, running := errgroup.WithContext(ctx)
	for _, m := range a.members {
		group.Go(func() error { return m.setup.Run(running, m.consumer) })
	}
	err = group.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = errors.Join(err, cause) // a route asked to stop
	}
	failed := scaled()
	if errors.Is(err, failed) {
		failed = nil // it was what ended the run
	}
	return errors.Join(err, failed, served())
}

// tellStopping logs that ctx has ended, as soon as it has. told is called when all has stopped: it waits for that line, which is
// another goroutine's and would else come after the last one, or never.
func (a *assembly) tellStopping(ctx context.Context) (told func()) {
	written := make(chan struct{})
	quiet := context.AfterFunc(ctx, func() {
		defer close(written)
		a.log.Info().Str("event", "stopping").Msg("no new messages are fetched; a second signal stops at once")
	})
	return func() {
		if !quiet() {
			<-written
		}
	}
}

// startEmbedded starts the server inside the process, with its streams, and says so.
func (a *assembly) startEmbedded(ctx context.Context) (*embeddedNATS, error) {
	c := a.doc.File.Embedded
	dir := c.Dir
	if dir == "" {
		dir = defaultDir
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding the folder of the embedded server: %w", err)
	}
	port := c.Port
	if port == 0 {
		port = defaultPort
	}
	e, err := startNATS(ctx, a.log, dir, port)
	if err != nil {
		return nil, err
	}
	if err = e.ensureStreams(ctx, a.streams); err == nil {
		err = e.ensureDurables(ctx, &a.doc.File, a.log)
	}
	if err != nil {
		e.stop()
		return nil, err
	}
	streams := zerolog.Arr()
	for _, s := range a.streams {
		streams.Str(s.name + ": " + strings.Join(s.subjects, " "))
	}
	a.log.Info().Str("event", "embedded_nats").Str("url", e.url).Str("dir", dir).Array("streams", streams).
		Msg("no url is configured: a NATS JetStream server runs inside this process")
	return e, nil
}

// defaultDir is the embedded server's folder, in the working directory.
const defaultDir = "longshore-data"

// paths are what somebody may look for on the admin address.
func (a *assembly) paths() string {
	if a.page != nil {
		return "/ui/ /livez /readyz /metrics"
	}
	return "/livez /readyz /metrics"
}

// serve starts the admin server, if there is one. served ends it and waits, within kill_grace; it goes on while the consumers
// drain.
func (a *assembly) serve(ctx context.Context) (served func() error, err error) {
	if a.admin == nil {
		return func() error { return nil }, nil
	}
	if err := a.admin.Listen(ctx); err != nil {
		return nil, fmt.Errorf("%w; set admin.listen to another address", err)
	}
	a.log.Info().Str("event", "admin").Stringer("listen", a.admin.Addr()).Msg(a.paths())
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended, clock := make(chan error, 1), newStopClock(ctx, a.doc)
	go func() {
		err := a.admin.Run(serving)
		if err != nil && serving.Err() == nil {
			a.halt(err) // without it nobody sees how we are
		}
		ended <- err
	}()
	return func() error {
		stop()
		return clock.wait(ended)
	}, nil
}
