package handlers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/rs/zerolog"
)

var (
	// ErrUnknown says that no handler is registered under a name.
	ErrUnknown = errors.New("handlers: unknown handler")
	// ErrDuplicate says that a name is taken.
	ErrDuplicate = errors.New("handlers: duplicate handler")
)

// A Factory makes a handler from its options. It checks everything that can be checked without running it, reports all findings at once
// (see Options.Decode and OptionErrors), and neither dials nor starts anything. What the handler holds beyond memory it gives to
// Setup.OnClose. Safe for concurrent use.
type Factory func(s *Setup, o Options) (consumer.Handler, error)

// Setup is what a consumer shares with the handlers that are made for it, and what they leave to be closed after it. Make one for each
// consumer; the zero value serves handlers that need nothing of it. Not safe for concurrent use.
type Setup struct {
	// Consumer is the consumer's name, for logs. Defaults to none.
	Consumer string
	// Logger is what the log handler writes to. Defaults to one that writes nothing.
	Logger *zerolog.Logger
	// Publisher serves the publish handler; the caller closes it. Nil: publish is refused.
	Publisher broker.Publisher
	// Topics are the topics or subjects that the consumer reads, wildcards included, so that publish can refuse to feed its own source.
	Topics []string
	// MaxWorkers is how many handlers run at once at most: webhook keeps as many connections. Defaults to 64.
	MaxWorkers int
	// Timeout is the consumer's, which ends a handler's context. webhook and exec refuse a timeout that is not below it, and default to nine
	// tenths of it where their own default is not below it. 0: there is none.
	Timeout time.Duration

	closers []func() error
	grace   time.Duration
}

// NeedGrace says that a handler may need d to return after its context has ended.
func (s *Setup) NeedGrace(d time.Duration) { s.grace = max(s.grace, d) }

// Grace is the longest that NeedGrace was given, 0 for none: consumer.Config.CancelGrace must be at least that, so that a drain waits for it.
func (s *Setup) Grace() time.Duration { return s.grace }

// OnClose has f called by Close.
func (s *Setup) OnClose(f func() error) { s.closers = append(s.closers, f) }

// Close calls what was given to OnClose, the latest first, and returns their errors, joined. Call it when the consumer's Run has
// returned, and when not all handlers could be made. Any number of times.
func (s *Setup) Close() error {
	var errs []error
	for _, f := range slices.Backward(s.closers) {
		errs = append(errs, f())
	}
	s.closers = nil
	return errors.Join(errs...)
}

// within is a handler's default for a timeout of its own: below the consumer's.
func (s *Setup) within(d time.Duration) time.Duration {
	if s.Timeout > 0 && d >= s.Timeout {
		return s.Timeout / 10 * 9
	}
	return d
}

// checkTimeout finds a timeout that the consumer's would come before.
func (s *Setup) checkTimeout(d time.Duration, errs OptionErrors) OptionErrors {
	if s.Timeout > 0 && d >= s.Timeout {
		errs.add("timeout", "is %v, not below the consumer's timeout, %v, which would end the call before", d, s.Timeout)
	}
	return errs
}

func (s *Setup) logger() zerolog.Logger {
	if s.Logger == nil {
		return zerolog.Nop()
	}
	return *s.Logger
}

// A Registry makes handlers by name. The zero value is empty and ready; AddReadyMade adds those of this package. Safe for concurrent use.
type Registry struct {
	mu        sync.RWMutex
	factories map[string]Factory
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{} }

// AddReadyMade registers log, webhook, exec and publish.
func (r *Registry) AddReadyMade() error {
	return errors.Join(
		r.Register("log", LogFactory),
		r.Register("webhook", WebhookFactory),
		r.Register("exec", ExecFactory),
		r.Register("publish", PublishFactory),
	)
}

// Register adds a factory. ErrDuplicate when the name is taken; a name consists of lower-case letters, digits, '-', '_' and '.'.
func (r *Registry) Register(name string, f Factory) error {
	if f == nil {
		return fmt.Errorf("handlers: registering %q: the factory is nil", name)
	}
	if !validName(name) {
		return fmt.Errorf("handlers: registering %q: a name consists of lower-case letters, digits, '-', '_' and '.'", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.factories[name]; ok {
		return fmt.Errorf("%w: %q is registered already; known: %s", ErrDuplicate, name, strings.Join(r.names(), ", "))
	}
	if r.factories == nil {
		r.factories = map[string]Factory{}
	}
	r.factories[name] = f
	return nil
}

func validName(name string) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.", c) {
			return false
		}
	}
	return name != ""
}

// Names lists what is registered, sorted.
func (r *Registry) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.names()
}

// names needs r.mu.
func (r *Registry) names() []string {
	names := make([]string, 0, len(r.factories))
	for name := range r.factories {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Build makes the handler that is registered under name. ErrUnknown when there is none; otherwise what its factory says, wrapped, so that
// errors.As finds its OptionErrors. s may be nil for handlers that need nothing of it.
func (r *Registry) Build(name string, s *Setup, o Options) (consumer.Handler, error) {
	r.mu.RLock()
	f := r.factories[name]
	known := r.names()
	r.mu.RUnlock()
	if f == nil {
		return nil, fmt.Errorf("%w %q; known: %s", ErrUnknown, name, strings.Join(known, ", "))
	}
	if s == nil {
		s = &Setup{}
	}
	h, err := f(s, o)
	if err != nil {
		return nil, fmt.Errorf("handler %q: %w", name, err)
	}
	if h == nil {
		return nil, fmt.Errorf("handler %q: its factory returned none", name)
	}
	return h, nil
}

// ordinary is the registry of the package-level functions.
var ordinary = func() *Registry {
	r := NewRegistry()
	if err := r.AddReadyMade(); err != nil {
		panic(err) // cannot happen: the registry was empty
	}
	return r
}()

// Register adds a factory to the default registry, which has the ready-made handlers already. Call it from an init function; it panics
// where Registry.Register returns an error, for that is a mistake in the program.
func Register(name string, f Factory) {
	if err := ordinary.Register(name, f); err != nil {
		panic(err)
	}
}

// Default returns the registry that Register adds to.
func Default() *Registry { return ordinary }
