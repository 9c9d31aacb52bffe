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

// startNATS starts it on a loopback port (server.RANDOM_PORT: a free one), with its file store in dir, which no other process may be using.
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
		return nil, fmt.Errorf("%s is in use by another longshore", dir)
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
	go s.Start() // returns when it is ready; its own goroutines end at Shutdown
	if !s.ReadyForConnections(10 * time.Second) {
		s.Shutdown()
		return errors.New("not ready within 10 s")
	}
	e.server, e.url = s, s.ClientURL()
	return nil
}

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

// A stream is one that the embedded server shall have.
type stream struct {
	name     string
	subjects []string
}

// ensureStreams creates the streams that are missing, and adds to the others the subjects that they lack.
func (e *embeddedNATS) ensureStreams(ctx context.Context, streams []stream) error {
	nc, err := nats.Connect(e.url)
	if err != nil {
		return fmt.Errorf("connecting to the embedded NATS server: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("using the embedded NATS server: %w", err)
	}
	for _, s := range streams {
		if err := ensureStream(ctx, js, s); err != nil {
			return fmt.Errorf("creating stream %s on the embedded NATS server: %w", s.name, err)
		}
	}
	return nil
}

func ensureStream(ctx context.Context, js jetstream.JetStream, s stream) error {
	have, err := js.Stream(ctx, s.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: s.name, Subjects: s.subjects})
		return err
	}
	if err != nil {
		return err
	}
	cfg := have.CachedInfo().Config
	missing := slices.DeleteFunc(slices.Clone(s.subjects), func(x string) bool { return slices.Contains(cfg.Subjects, x) })
	if len(missing) == 0 {
		return nil
	}
	cfg.Subjects = append(cfg.Subjects, missing...)
	_, err = js.UpdateStream(ctx, cfg)
	return err
}
