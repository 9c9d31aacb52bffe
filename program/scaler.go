package program

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/longshoremq/longshore/internal/replicas"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// scalerFlags say where the scaler answers, and what it goes by.
type scalerFlags struct {
	file, listen, http string
	cert, key          string
	processes          []string
	sample             bool // these are some of the processes, and nobody knows how many there are
	settings           replicas.Settings
	every              time.Duration
}

func newScaler(p Parts) *cobra.Command {
	s := &scalerFlags{}
	cmd := &cobra.Command{
		Use:   "scaler -c FILE",
		Short: "Tell an autoscaler how many processes the consumers of a file need",
		Long: "Answers KEDA's external scaler, and GET /scaler as JSON, with how many processes each consumer of a configuration " +
			"file needs: those that\n" +
			"keep up with what arrives and drain what waits, at what one process does with all of its workers. It asks the broker and " +
			"is no member\n" +
			"of a group, so it also tells when the first process is needed. What a process does is asked of the processes themselves " +
			"(--processes),\n" +
			"or said by a number (--per-replica, or perReplica in the metadata of a ScaledObject). What is unknown is an error, and " +
			"never 0.",
		Example: "  longshore scaler -c c.yaml --listen :9091 --processes orders:8080\n  longshore scaler -c c.yaml --per-replica " +
			"400 --http :9092",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := noArgs(cmd, args); err != nil {
				return err
			}
			if err := s.check(); err != nil {
				return usageError{err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			doc, err := loadFile(cmd.Context(), s.file, p.adapters())
			if err != nil {
				return usageError{err}
			}
			if err := doc.ErrOf(config.NeedsBroker); err != nil {
				return usageError{err}
			}
			writeOn(cmd.Context())
			log := newLogger(doc.File.Log, cmd.ErrOrStderr())
			defer adoptLog(log)()
			if err := s.run(cmd.Context(), doc, log); err != nil {
				log.Error().Str("event", "failed").Err(err).Send()
				return loggedError{err}
			}
			log.Info().Str("event", "stopped").Send()
			return nil
		},
	}
	s.flags(cmd)
	return cmd
}

func (s *scalerFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&s.file, "config", "c", "", "configuration file of the consumers")
	f.StringVar(&s.listen, "listen", "127.0.0.1:9091", "address for KEDA (gRPC)")
	f.StringVar(&s.http, "http", "", "address for GET /scaler and /metrics (default none)")
	f.StringVar(&s.cert, "tls-cert", "", "certificate of --listen, PEM (default no TLS)")
	f.StringVar(&s.key, "tls-key", "", "its key")
	f.StringSliceVar(&s.processes, "processes", nil,
		"admin addresses of the processes, host:port: the host is a DNS name of all of them, or an address")
	f.Float64Var(&s.settings.PerReplica, "per-replica", 0,
		"messages a second that one process does with all of its workers, as long as no process has told")
	f.DurationVar(&s.settings.Drain, "drain", time.Minute, "in which time a backlog is to be done")
	f.DurationVar(&s.every, "every", 2*time.Second, "how often the broker and the processes are asked")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
}

// check reports all that is wrong with the flags at once.
func (s *scalerFlags) check() error {
	var errs []error
	if s.file == "" {
		errs = append(errs, errors.New("scaler needs --config FILE, the file of the consumers"))
	}
	listen, page := "--listen", "--http"
	if s.sample { // of the command run
		listen, page = "--scaler", "--scaler-http"
	}
	addresses := []struct{ flag, value string }{{listen, s.listen}}
	if s.http != "" {
		addresses = append(addresses, struct{ flag, value string }{page, s.http})
	}
	for _, p := range s.processes {
		addresses = append(addresses, struct{ flag, value string }{"--processes", p})
	}
	for _, a := range addresses {
		asked := a.flag == "--processes" // the others are bound: 0 is any free port there
		host, port, err := net.SplitHostPort(a.value)
		if err != nil || !isPort(port) && (asked || port != "0") || asked && host == "" {
			errs = append(errs, fmt.Errorf("%s is %q, want host:port", a.flag, a.value))
		}
	}
	if (s.cert == "") != (s.key == "") {
		errs = append(errs, errors.New("--tls-cert and --tls-key go together"))
	}
	if !(s.settings.PerReplica >= 0) || s.settings.PerReplica > maxPerReplica {
		errs = append(errs, fmt.Errorf("--per-replica is %v, want 0 to %v", s.settings.PerReplica, maxPerReplica))
	}
	if s.settings.Drain < time.Second || s.settings.Drain > maxDrain {
		errs = append(errs, fmt.Errorf("--drain is %v, want 1s..%v", s.settings.Drain, maxDrain))
	}
	if s.every < 100*time.Millisecond || s.every > 15*time.Second {
		errs = append(errs, fmt.Errorf("--every is %v, want 100ms..15s", s.every))
	}
	return errors.Join(errs...)
}

// Bounds of what may be asked for.
const (
	maxPerReplica = 1e9
	maxDrain      = 24 * time.Hour
)

// run answers until ctx ends, or an address cannot be served any more.
func (s *scalerFlags) run(ctx context.Context, doc *config.Document, log zerolog.Logger) error {
	targets, err := scalerTargets(doc, s.processes, s.sample, s.every, log)
	defer func() {
		for _, t := range targets {
			t.close()
		}
	}()
	if err != nil {
		return err
	}
	serve, err := s.servers(ctx, targets, log)
	if err != nil {
		return err
	}
	group, running := errgroup.WithContext(ctx)
	for _, t := range targets {
		group.Go(func() error { t.run(running); return nil })
	}
	for _, one := range serve {
		group.Go(func() error { return one(running) })
	}
	return group.Wait()
}

// servers binds the addresses; what it returns serves them until their context ends.
func (s *scalerFlags) servers(ctx context.Context, targets map[string]*scalerTarget,
	log zerolog.Logger) (serve []func(context.Context) error, err error) {
	var lc net.ListenConfig
	keda, err := lc.Listen(ctx, "tcp", s.listen)
	if err != nil {
		return nil, fmt.Errorf("scaler: listening: %w", err)
	}
	g, err := newScalerServer(targets, s.settings, s.cert, s.key)
	if err != nil {
		_ = keda.Close()
		return nil, fmt.Errorf("scaler: %w", err)
	}
	serve = append(serve, func(ctx context.Context) error { return serveGRPC(ctx, g, keda) })
	told := log.Info().Str("event", "scaler").Stringer("listen", keda.Addr())
	if s.http != "" {
		plain, err := lc.Listen(ctx, "tcp", s.http)
		if err != nil {
			_ = keda.Close()
			return nil, fmt.Errorf("scaler: listening: %w", err)
		}
		told = told.Stringer("http", plain.Addr())
		page := newScalerPage(targets, s.settings, log)
		serve = append(serve, func(ctx context.Context) error { return page.serve(ctx, plain) })
	}
	if n := s.settings.PerReplica; n > 0 {
		told = told.Float64("per_replica", n)
	}
	told.Strs("processes", s.processes).Stringer("drain", s.settings.Drain).Msg("how many processes the consumers need")
	return serve, nil
}
