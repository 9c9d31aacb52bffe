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
	"time"

	"github.com/gofrs/flock"
	"github.com/longshoremq/longshore/internal/natssubject"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// embeddedNATS is a nats-server with JetStream inside this process.
type embeddedNATS struct {
	server *server.Server
	url    string
	lock   *flock.Flock
}

// startNATS starts it on a loopback port (server.RANDOM_PORT: a free one), with its file store in dir, which no other process may
// be using.
func startNATS(dir string, port int) (*embeddedNATS, error) {
	lock, err := lockStore(dir)
	if err != nil {
		return nil, fmt.Errorf("starting the embedded NATS server: %w", err)
	}
	e := &embeddedNATS{lock: lock}
	if err := e.start(dir, port); err != nil {
		_ = lock.Unlock()
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

func (e *embeddedNATS) start(dir string, port int) error {
	if err := portFree(port); err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "longshore-embedded", Host: "127.0.0.1", Port: port,
		JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return err
	}
	fatal := make(fatalLog, 1)
	s.SetLogger(fatal, false, false)
	go s.Start() // returns when it is ready; its own goroutines end at Shutdown
	for over := time.Now().Add(10 * time.Second); !s.ReadyForConnections(50 * time.Millisecond); {
		select {
		case why := <-fatal:
			s.Shutdown()
			return errors.New(why)
		default:
		}
		if time.Now().After(over) {
			s.Shutdown()
			return errors.New("not ready within 10 s")
		}
	}
	e.server, e.url = s, s.ClientURL()
	return nil
}

// A fatalLog is a server's log of which only why it did not start is kept: it returns no error for that, and would only not
// become ready.
type fatalLog chan string

func (l fatalLog) Fatalf(format string, args ...any) {
	select {
	case l <- fmt.Sprintf(format, args...):
	default: // the first is the reason
	}
}

func (fatalLog) Noticef(string, ...any) {}
func (fatalLog) Warnf(string, ...any)   {}
func (fatalLog) Errorf(string, ...any)  {}
func (fatalLog) Debugf(string, ...any)  {}
func (fatalLog) Tracef(string, ...any)  {}

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
