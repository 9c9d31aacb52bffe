package handlers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/internal/panicked"
	"github.com/rs/zerolog"
)

var (
	// ErrUnknown says that nothing is registered under a name.
	ErrUnknown = errors.New("handlers: unknown")
	// ErrDuplicate says that a name is taken.
	ErrDuplicate = errors.New("handlers: duplicate")
)

// A Factory makes a handler from its options. It checks everything that can be checked without running it, reports all findings
// at once (see Options.Decode and OptionErrors), and neither dials nor starts anything. What the handler holds beyond memory it
// gives to Setup.OnClose, and what has to run while the consumer does to Setup.Beside. Safe for concurrent use.
type Factory func(s *Setup, o Options) (consumer.Handler, error)

// Setup is what a consumer shares with the handlers that are made for it, and what they leave to be closed after it. Make one for
// each consumer; the zero value serves handlers that need nothing of it. Not safe for concurrent use.
type Setup struct {
	// Consumer is the consumer's name, for logs, and see Group. Defaults to none.
	Consumer string
	// Group is what the consumer shares its messages in with other processes: the groups, or streams and durables, of its sources.
	// With Consumer it tells what publish hands on from what another consumer makes of the same messages. Defaults to none.
	Group string
	// Logger is what handlers log to, log among them. Build sets it where it is nil, to one that writes nothing.
	Logger *zerolog.Logger
	// LogWriter is the writer that Logger was made with: with it a message whose event could not be written is not acked, but tried
	// again (LogConfig.Writer). Defaults to none: what could not be written is acked.
	LogWriter io.Writer
	// Publisher serves the publish handler; the caller closes it. Nil: publish is refused.
	Publisher broker.Publisher
	// Topics are the topics or subjects that the consumer reads, wildcards included, so that publish can refuse to feed its own
	// source.
	Topics []string
	// MaxWorkers is how many handlers run at once at most: webhook keeps as many connections. Defaults to 64.
	MaxWorkers int
	// Codec is that of the route, if it has one: see Decoder. Defaults to none.
	Codec Codec
	// Timeout is the consumer's, which ends a handler's context. webhook and exec refuse a timeout that is not below it, and default
	// to nine tenths of it where their own default is not below it. 0: there is none.
	Timeout time.Duration

	closers []func() error
	beside  []func(context.Context, *consumer.Consumer) error
	grace   time.Duration
	decodes bool
}

// Decoder is Codec, or JSONCodec where there is none. What never asks for it decodes nothing: a codec in its route is then a
// mistake.
func (s *Setup) Decoder() Codec {
	s.decodes = true
	if s.Codec == nil {
		return JSONCodec{}
	}
	return s.Codec
}

// Decodes says whether Decoder was called since this was asked last.
func (s *Setup) Decodes() bool {
	decodes := s.decodes
	s.decodes = false
	return decodes
}

// NeedGrace says that a handler may need d to return after its context has ended.
func (s *Setup) NeedGrace(d time.Duration) { s.grace = max(s.grace, d) }

// Grace is the longest that NeedGrace was given, 0 for none: consumer.Config.CancelGrace must be at least that, so that a drain
// waits for it.
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

// A Registry has what a configuration file can name: handlers, batch handlers, middleware and codecs, each kind with names of its
// own. The zero value is empty and ready; AddReadyMade adds what this package has. Safe for concurrent use.
type Registry struct {
	factories  named[Factory]
	batches    named[BatchFactory]
	middleware named[MiddlewareFactory]
	codecs     named[Codec]
}

// A MiddlewareFactory makes a middleware from its options, by the same rules as a Factory.
type MiddlewareFactory func(s *Setup, o Options) (consumer.Middleware, error)

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{} }

// AddReadyMade registers the handlers log, webhook, exec and publish, the batch handlers log, webhook and exec, and the codecs
// json and json_strict.
func (r *Registry) AddReadyMade() error {
	return errors.Join(
		r.Register("log", LogFactory),
		r.Register("webhook", WebhookFactory),
		r.Register("exec", ExecFactory),
		r.Register("publish", PublishFactory),
		r.RegisterBatch("log", LogBatchFactory),
		r.RegisterBatch("webhook", WebhookBatchFactory),
		r.RegisterBatch("exec", ExecBatchFactory),
		r.RegisterCodec("json", JSONCodec{}),
		r.RegisterCodec("json_strict", JSONCodec{Strict: true}),
	)
}

// Register adds the factory of a handler. ErrDuplicate when the name is taken; a name consists of lower-case letters, digits,
// '-', '_' and '.'.
func (r *Registry) Register(name string, f Factory) error {
	return r.factories.add("handler", name, f, f == nil)
}

// RegisterBatch is Register for a batch handler.
func (r *Registry) RegisterBatch(name string, f BatchFactory) error {
	return r.batches.add("batch handler", name, f, f == nil)
}

// RegisterMiddleware is Register for a middleware. The program's own come first where a name is in both.
func (r *Registry) RegisterMiddleware(name string, f MiddlewareFactory) error {
	return r.middleware.add("middleware", name, f, f == nil)
}

// RegisterCodec is Register for a codec, which a route's codec names and a factory gets by Setup.Decoder.
func (r *Registry) RegisterCodec(name string, c Codec) error {
	return r.codecs.add("codec", name, c, c == nil)
}

// named is what is registered of one kind, whose name is for messages. The zero value is empty. Safe for concurrent use.
type named[T any] struct {
	mu sync.RWMutex
	by map[string]T
}

func (n *named[T]) add(kind, name string, v T, none bool) error {
	if none {
		return fmt.Errorf("handlers: registering %s %q: it is nil", kind, name)
	}
	if !validName(name) {
		return fmt.Errorf("handlers: registering %s %q: a name consists of lower-case letters, digits, '-', '_' and '.'", kind, name)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, taken := n.by[name]; taken {
		return fmt.Errorf("%w: %s %q is registered already; known: %s", ErrDuplicate, kind, name, strings.Join(n.sorted(), ", "))
	}
	if n.by == nil {
		n.by = map[string]T{}
	}
	n.by[name] = v
	return nil
}

// find is what has a name; ErrUnknown: nothing.
func (n *named[T]) find(kind, name string) (v T, err error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	v, ok := n.by[name]
	if !ok {
		err = fmt.Errorf("%w %s %q; known: %s", ErrUnknown, kind, name, strings.Join(n.sorted(), ", "))
	}
	return v, err
}

func (n *named[T]) names() []string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.sorted()
}

// sorted are the names, for who has the lock.
func (n *named[T]) sorted() []string { return slices.Sorted(maps.Keys(n.by)) }

func validName(name string) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.", c) {
			return false
		}
	}
	return name != ""
}

// Names lists the handlers, sorted.
func (r *Registry) Names() []string { return r.factories.names() }

// BatchNames lists the batch handlers, sorted.
func (r *Registry) BatchNames() []string { return r.batches.names() }

// MiddlewareNames lists the middleware, sorted.
func (r *Registry) MiddlewareNames() []string { return r.middleware.names() }

// CodecNames lists the codecs, sorted.
func (r *Registry) CodecNames() []string { return r.codecs.names() }

// Build makes the handler that is registered under name. ErrUnknown when there is none; otherwise what its factory says, wrapped,
// so that errors.As finds its OptionErrors. s may be nil for handlers that need nothing of it.
func (r *Registry) Build(name string, s *Setup, o Options) (consumer.Handler, error) {
	f, err := r.factories.find("handler", name)
	if err != nil {
		return nil, err
	}
	h, err := call(f, s, o)
	return made("handler", name, h, h == nil, err)
}

// BuildBatch is Build for a batch handler.
func (r *Registry) BuildBatch(name string, s *Setup, o Options) (consumer.BatchHandler, error) {
	f, err := r.batches.find("batch handler", name)
	if err != nil {
		return nil, err
	}
	h, err := call(f, s, o)
	return made("batch handler", name, h, h == nil, err)
}

// BuildMiddleware is Build for a middleware.
func (r *Registry) BuildMiddleware(name string, s *Setup, o Options) (consumer.Middleware, error) {
	f, err := r.middleware.find("middleware", name)
	if err != nil {
		return nil, err
	}
	m, err := call(f, s, o)
	return made("middleware", name, m, m == nil, err)
}

// Codec is the one that is registered under name; ErrUnknown when there is none.
func (r *Registry) Codec(name string) (Codec, error) { return r.codecs.find("codec", name) }

// filled is s with what a factory may take for given.
func filled(s *Setup) *Setup {
	if s == nil {
		s = &Setup{}
	}
	if s.Logger == nil {
		none := zerolog.Nop()
		s.Logger = &none
	}
	return s
}

// call calls a factory. A panic of it is an error as any other that it reports, so that all others are called, and the place in
// the file is told. Options that it has not decoded are unknown ones.
func call[T any](f func(*Setup, Options) (T, error), s *Setup, o Options) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its factory panicked: %v, at %s", p, panicked.At("/handlers.call["))
		}
	}()
	read := false
	o.read = &read
	if v, err = f(filled(s), o); err == nil && !read {
		err = o.Decode(&struct{}{}) // it has none
	}
	return v, err
}

// made is what a factory made, or what is wrong with that.
func made[T any](kind, name string, v T, none bool, err error) (T, error) {
	var zero T
	switch {
	case err != nil:
		return zero, fmt.Errorf("%s %q: %w", kind, name, err)
	case none:
		return zero, fmt.Errorf("%s %q: its factory returned none", kind, name)
	}
	return v, nil
}

// ordinary is the registry of the package-level functions.
var ordinary = func() *Registry {
	r := NewRegistry()
	if err := r.AddReadyMade(); err != nil {
		panic(err) // cannot happen: the registry was empty
	}
	return r
}()

// Register adds the factory of a handler to the default registry, which has the ready-made handlers already. Call it from an init
// function; it panics where Registry.Register returns an error, for that is a mistake in the program.
func Register(name string, f Factory) { must(ordinary.Register(name, f)) }

// RegisterBatch is Register for a batch handler.
func RegisterBatch(name string, f BatchFactory) { must(ordinary.RegisterBatch(name, f)) }

// RegisterMiddleware is Register for a middleware.
func RegisterMiddleware(name string, f MiddlewareFactory) {
	must(ordinary.RegisterMiddleware(name, f))
}

// RegisterCodec is Register for a codec.
func RegisterCodec(name string, c Codec) { must(ordinary.RegisterCodec(name, c)) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Default returns the registry that Register adds to.
func Default() *Registry { return ordinary }
