package program

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/longshoremq/longshore/internal/natssubject"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

// embeddedNATS is a nats-server with JetStream inside this process.
type embeddedNATS struct {
	server *server.Server
	url    string
	lock   *flock.Flock
}

// startNATS starts it on a loopback port (server.RANDOM_PORT: a free one), with its file store in dir, which no other process may
// be using. It waits for as long as the server recovers what is there, or until ctx ends. The server's warnings and errors go to
// log.
func startNATS(ctx context.Context, log zerolog.Logger, dir string, port int) (*embeddedNATS, error) {
	lock, err := lockStore(dir)
	if err != nil {
		return nil, fmt.Errorf("starting the embedded NATS server: %w", err)
	}
	e := &embeddedNATS{lock: lock}
	if err := e.start(ctx, log, dir, port); err != nil {
		return nil, fmt.Errorf("starting the embedded NATS server: %w", err)
	}
	return e, nil
}

// lockStore makes dir and locks it: two servers on one store destroy it.
func lockStore(dir string) (*flock.Flock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock := flock.New(filepath.Join(dir, "longshore.lock"), flock.SetPermissions(0o600))
	switch ok, err := lock.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	case !ok:
		return nil, fmt.Errorf("%s is in use by another longshore: set embedded.dir and embedded.port to others, or url to its server",
			dir)
	}
	return lock, nil
}

// start starts the server. Where it does not, the lock is given up as soon as nothing uses the store.
func (e *embeddedNATS) start(ctx context.Context, log zerolog.Logger, dir string, port int) error {
	err := portFree(port)
	if err == nil {
		e.server, err = server.NewServer(&server.Options{
			ServerName: "longshore-embedded", Host: "127.0.0.1", Port: port,
			JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true,
		})
	}
	if err != nil {
		_ = e.lock.Unlock()
		return err
	}
	told := newServerLog(log)
	e.server.SetLogger(told, false, false)
	go e.server.Start() // returns when it is ready; its own goroutines end at Shutdown
	ready := func() bool { return e.server.ReadyForConnections(50 * time.Millisecond) }
	switch err := awaitServer(ctx, ready, told.fatal, func() {
		log.Warn().Str("event", "embedded_nats_recovers").Str("dir", dir).Dur("after_ms", slowStart).
			Msg("the NATS server inside this process is not ready yet: it recovers what is in its folder")
	}); {
	case err == nil:
		e.url = e.server.ClientURL()
		return nil
	case ctx.Err() != nil: // it shuts down when it has recovered, for which nobody waits
		go e.stop()
		return err
	default:
		e.stop()
		return err
	}
}

// slowStart is after how long it is told that a server is not ready.
const slowStart = 10 * time.Second

// awaitServer waits until a server is ready, which looks for a while, says what is wrong with it, or ctx ends. slow is told once
// that it takes long: a large store, or one that has to be looked through after a crash, takes minutes.
func awaitServer(ctx context.Context, ready func() bool, fatal <-chan string, slow func()) error {
	over := time.Now().Add(slowStart)
	for told := false; !ready(); {
		select {
		case why := <-fatal:
			return errors.New(why)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		if !told && time.Now().After(over) {
			told = true
			slow()
		}
	}
	return nil
}

// A serverLog is a server's log: why it did not start, for which it returns no error, and would only not become ready; and its
// warnings and errors, such as of a store that is damaged, or has no room.
type serverLog struct {
	fatal chan string
	log   zerolog.Logger
}

func newServerLog(log zerolog.Logger) serverLog {
	return serverLog{make(chan string, 1), log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Second})}
}

func (l serverLog) Fatalf(format string, args ...any) {
	select {
	case l.fatal <- fmt.Sprintf(format, args...):
	default: // the first is the reason
	}
}

func (l serverLog) Warnf(format string, args ...any)  { l.tell(zerolog.WarnLevel, format, args) }
func (l serverLog) Errorf(format string, args ...any) { l.tell(zerolog.ErrorLevel, format, args) }

func (l serverLog) tell(level zerolog.Level, format string, args []any) {
	l.log.WithLevel(level).Str("event", "embedded_nats_log").Msg(strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (serverLog) Noticef(string, ...any) {}
func (serverLog) Debugf(string, ...any)  {}
func (serverLog) Tracef(string, ...any)  {}

// portFree says what is wrong with a port; the server itself would only not become ready.
func portFree(port int) error {
	if port == server.RANDOM_PORT {
		return nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("%w; is there another NATS server? Set embedded.port to use another port, or url to use that server", err)
	}
	return l.Close()
}

func (e *embeddedNATS) stop() {
	e.server.Shutdown()
	e.server.WaitForShutdown()
	_ = e.lock.Unlock()
}

// embeddedAway adds to an error of reaching the embedded server when there is one to reach.
func embeddedAway(err error, file string) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrNoServers) {
		return err
	}
	return fmt.Errorf("%w; the embedded server runs only while `longshore run -c %s` does", err, file)
}

// A stream is one that the embedded server shall have.
type stream struct {
	name     string
	subjects []string
}

// ensureStreams creates the streams that are missing, and adds to the others the subjects that they lack. It takes no subject
// away.
func (e *embeddedNATS) ensureStreams(ctx context.Context, streams []stream) error {
	js, end, err := e.jetStream()
	if err != nil {
		return err
	}
	defer end()
	for _, s := range streams {
		if err := ensureStream(ctx, js, s); err != nil {
			return fmt.Errorf("stream %s of the embedded NATS server: %w", s.name, err)
		}
	}
	return nil
}

// jetStream is a connection to the server, which end closes.
func (e *embeddedNATS) jetStream() (js jetstream.JetStream, end func(), err error) {
	nc, err := nats.Connect(e.url)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to the embedded NATS server: %w", err)
	}
	js, err = jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("using the embedded NATS server: %w", err)
	}
	return js, nc.Close, nil
}

func ensureStream(ctx context.Context, js jetstream.JetStream, s stream) error {
	if err := othersSubjects(ctx, js, s); err != nil {
		return err
	}
	have, err := js.Stream(ctx, s.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: s.name, Subjects: s.subjects}); err != nil {
			return fmt.Errorf("creating it: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for it: %w", err)
	}
	cfg := have.CachedInfo().Config
	subjects, err := join(cfg.Subjects, s.subjects)
	if err != nil || slices.Equal(subjects, slices.Sorted(slices.Values(cfg.Subjects))) {
		return err
	}
	cfg.Subjects = subjects
	if _, err = js.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("changing its subjects to %q: %w", subjects, err)
	}
	return nil
}

// join is what takes all that a stream's subjects take, and all that is wanted.
func join(have, wanted []string) ([]string, error) {
	for _, s := range wanted {
		for _, h := range have {
			if natssubject.Overlap(h, s) && !natssubject.Matches(h, s) && !natssubject.Matches(s, h) {
				return nil, fmt.Errorf("it has the subject %q, which overlaps with %q, and neither takes the other: a stream cannot have "+
					"both. Configure one that takes both", h, s)
			}
		}
	}
	return natssubject.Widest(slices.Concat(have, wanted)), nil
}

// othersSubjects says which stream has a subject that s is to have: a subject belongs to one stream.
func othersSubjects(ctx context.Context, js jetstream.JetStream, s stream) error {
	list := js.ListStreams(ctx)
	var errs []error
	for info := range list.Info() {
		if info.Config.Name == s.name {
			continue
		}
		for _, theirs := range info.Config.Subjects {
			if i := slices.IndexFunc(s.subjects, func(x string) bool { return natssubject.Overlap(theirs, x) }); i >= 0 {
				errs = append(errs, fmt.Errorf("its subject %q overlaps with %q, which belongs to stream %s, made by an earlier "+
					"configuration and now with %d messages. Read it from there (stream: %s), or set embedded.dir to a new folder",
					s.subjects[i], theirs, info.Config.Name, info.State.Msgs, info.Config.Name))
			}
		}
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("listing the streams: %w", err)
	}
	return errors.Join(errs...)
}
