package natsbroker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/internal/chance"
	"github.com/longshoremq/longshore/internal/dialer"
	"github.com/longshoremq/longshore/internal/plaintext"
)

func init() { dialer.Accept(func(c *Connection, dial dialer.Func) { c.dial = dial }) }

// A link is one connection to the servers, for ever: nats.go reconnects it, and what nats.go closes for good (an -ERR that it
// does not know) the link dials anew.
type link struct {
	cfg   Connection
	hooks hooks

	cur    atomic.Pointer[nats.Conn]
	wire   atomic.Pointer[wire]   // of the newest connection
	denial atomic.Pointer[denial] // the newest
	broken atomic.Pointer[error]  // why the connection was lost last, or could not be made
	wg     sync.WaitGroup
	done   context.Context // ends at close
	stop   context.CancelFunc

	mu       sync.Mutex
	dialed   []error         // that failed in the attempt under way
	undialed map[string]bool // addresses that were told of; see tellOnce
	ended    *nats.Conn      // the last one that was closed for good; see over

	refusals   refusals
	refused    atomic.Pointer[connEpoch] // the connection of the last refusal
	unanswered unanswered
}

// hooks tell the owner of a link what happens to it. They are called from nats.go's goroutines and do not block.
type hooks struct {
	lost    func(err error)                 // the connection is gone, or an attempt failed
	back    func()                          // it is there again, perhaps as another *nats.Conn
	problem func(*nats.Subscription, error) // an asynchronous error of a living connection
	// deaf is told of subscriptions that the server refused; nil: the connection is made anew, which subscribes again.
	deaf func(err error)
}

func newLink(cfg Connection, h hooks) *link {
	ctx, cancel := context.WithCancel(context.Background())
	return &link{cfg: cfg, hooks: h, done: ctx, stop: cancel}
}

// conn is the present connection; nil before the first.
func (l *link) conn() *nats.Conn { return l.cur.Load() }

// connected says whether there is a server at the other end, as far as the client knows.
func (l *link) connected() bool {
	nc := l.conn()
	return nc != nil && nc.IsConnected()
}

// open connects. It tries on until ctx ends, or the link is closed, telling each failure to hooks.lost; what no further attempt
// can cure is returned at once.
func (l *link) open(ctx context.Context) error {
	opts, err := l.options()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.done, func() { cancel(errClosed) })()
	handshakes := 0 // that failed one after the other
	var last error  // of an attempt that had its time
	for attempt := 1; ; attempt++ {
		err := l.try(ctx, opts, attempt == 1)
		if err == nil {
			return nil
		}
		if handshakes++; !errors.Is(err, nats.ErrTLS) {
			handshakes = 0
		}
		if ctx.Err() == nil {
			last = fmt.Errorf("connecting to %s: %w", l.cfg.where(), l.cfg.redact(l.explain(err)))
			// A server that refuses our certificate may just hang up after the handshake, which once may have another reason.
			if hopeless(err) || handshakes >= 3 {
				return last
			}
			l.lose(last)
		}
		select {
		case <-ctx.Done():
			if last == nil {
				return fmt.Errorf("connecting to %s: %w", l.cfg.where(), context.Cause(ctx))
			}
			return fmt.Errorf("%w (given up: %w)", last, context.Cause(ctx))
		case <-time.After(l.cfg.pause(attempt)):
		}
	}
}

// silence is after how long the first attempt is told of that has no answer yet: somebody waits to be told what is wrong.
const silence = 2 * time.Second

// explain adds what nats.go leaves out: why no server was there, and what may be set up otherwise.
func (l *link) explain(err error) error {
	l.mu.Lock()
	dialed := errors.Join(l.dialed...)
	l.mu.Unlock()
	switch {
	case errors.Is(err, nats.ErrNoServers) && dialed != nil:
		return fmt.Errorf("%w: %w", err, dialed)
	case errors.Is(err, nats.ErrSecureConnWanted):
		return fmt.Errorf("%w (does this port speak TLS?)", err)
	}
	return err
}

// try makes one attempt; of the first it is told when it has no answer for long.
func (l *link) try(ctx context.Context, opts []nats.Option, first bool) error {
	if first {
		defer time.AfterFunc(silence, func() {
			l.lose(fmt.Errorf("connecting to %s: no answer for %v", l.cfg.where(), silence))
		}).Stop()
	}
	nc, err := l.dial(ctx, opts)
	if err != nil {
		return err
	}
	l.cur.Store(nc)
	if l.done.Err() != nil { // and close may have looked before that
		nc.Close()
		return errClosed
	}
	if l.over(nc) { // before it was ours, so that closed took it for none of ours
		return cmp.Or(nc.LastError(), errClosed)
	}
	return nil
}

// dial connects. nats.Connect takes no context, so it is left to end by its own timeout when ctx ends first.
func (l *link) dial(ctx context.Context, opts []nats.Option) (*nats.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.dialed = nil
	l.mu.Unlock()
	type result struct {
		nc  *nats.Conn
		err error
	}
	ch := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(strings.Join(l.cfg.URLs, ","), opts...)
		ch <- result{nc, err}
	}()
	select {
	case r := <-ch:
		return r.nc, r.err
	case <-ctx.Done():
		go func() {
			if r := <-ch; r.nc != nil {
				r.nc.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// hopeless says that an attempt failed for a reason that stays: credentials, certificates, settings.
func hopeless(err error) bool {
	var cert *tls.CertificateVerificationError
	var op *net.OpError
	for _, e := range []error{nats.ErrNkeysNotSupported, nats.ErrSecureConnRequired, nats.ErrSecureConnWanted,
		nats.ErrNkeyButNoSigCB, nats.ErrBadSubject} {
		if errors.Is(err, e) {
			return true
		}
	}
	return loginRefused(err) || errors.As(err, &cert) ||
		(errors.As(err, &op) && op.Op == "remote error") // how crypto/tls marks the peer's alert
}

// loginRefused says that the server does not take our login, or takes it no longer. It then closes the connection.
func loginRefused(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) ||
		errors.Is(err, nats.ErrAccountAuthExpired)
}

func (l *link) options() ([]nats.Option, error) {
	c := l.cfg
	opts := []nats.Option{
		nats.Name(c.Name),
		nats.Timeout(c.DialTimeout),
		nats.SetCustomDialer(l),
		nats.PingInterval(c.PingInterval),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(l.again),
		nats.IgnoreAuthErrorAbort(),
		// Nothing waits in nats.go while there is no connection: the adapter keeps it, and looks at it again before it is sent.
		nats.ReconnectBufSize(-1),
		nats.FlusherTimeout(10 * time.Second),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { l.disconnected(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { l.disconnected(err) }),
		nats.ReconnectHandler(func(*nats.Conn) { l.hooks.back() }),
		nats.ClosedHandler(func(nc *nats.Conn) { l.closed(nc) }),
		nats.ErrorHandler(l.problem),
	}
	if c.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	auth, err := c.auth()
	if err != nil {
		return nil, err
	}
	secure, err := c.secure()
	if err != nil {
		return nil, err
	}
	return append(append(opts, auth...), secure...), nil
}

var errClosed = errors.New("connection closed")

// lose tells that the connection is gone, or that an attempt failed, and keeps why.
func (l *link) lose(err error) {
	l.broken.Store(&err)
	l.hooks.lost(err)
}

// away adds to the error of who waits for a connection, or did without one, why there is none.
func (l *link) away(err error) error {
	if why := l.broken.Load(); why != nil {
		return fmt.Errorf("no connection: %w (given up: %w)", *why, err)
	}
	return fmt.Errorf("no connection to %s: %w", l.cfg.where(), err)
}

func (l *link) disconnected(err error) {
	if l.done.Err() != nil {
		return
	}
	if err == nil {
		err = errClosed
	}
	l.lose(fmt.Errorf("connection to %s: %w", l.cfg.where(), l.cfg.redact(err)))
}

// again is how long nats.go waits before it tries the servers again. It tells of an attempt that could dial and failed in the
// handshake, for TLS, for want of room or of an answer: of that nats.go tells nobody. Of a login that is refused it does.
func (l *link) again(n int) time.Duration {
	if nc := l.conn(); nc != nil {
		if err := nc.LastError(); err != nil && !loginRefused(err) {
			l.disconnected(l.explain(err))
		}
	}
	return l.cfg.pause(n)
}

// problem is told of asynchronous errors. A login that is refused may be the one of a seed that was replaced since: nats.go keeps
// the public key of the first, so the connection is given up, and the link dials with the new one.
func (l *link) problem(nc *nats.Conn, sub *nats.Subscription, err error) {
	if errors.Is(err, nats.ErrAuthorization) && l.cfg.seedReplaced(nc.Opts.Nkey) {
		nc.Close()
	}
	if loginRefused(err) { // nats.go tells so of each attempt to connect again, and there is no connection
		l.disconnected(err)
		return
	}
	err = l.cfg.redact(err)
	if errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, nats.ErrMaxSubscriptionsExceeded) {
		l.denial.Store(&denial{at: time.Now(), err: err})
	}
	l.hooks.problem(sub, err)
	switch {
	case !deafened(err):
	case l.hooks.deaf != nil:
		l.hooks.deaf(err)
	default:
		l.renewLater(nc, l.cfg.ReconnectWait)
		l.denial.Store(&denial{time.Now(), l.refusals.next(), err})
	}
}

// A denial is what the server said of a right that we do not have, or not to so much, and when.
type denial struct {
	at    time.Time
	until time.Time // where it was a subscription: nothing comes for it before the connection is made anew, then
	err   error
}

// why adds to the error of a question that had no answer what the server said of our rights since it was asked: who asks is not
// told, and waits in vain, or until the connection is made anew for it. It is not wrapped, for it refuses a question, and no
// message.
func (l *link) why(err error, asked time.Time) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrDisconnected) {
		return err
	}
	return l.denied(err, asked)
}

// denied adds to an error what the server said of our rights since a time.
func (l *link) denied(err error, since time.Time) error {
	d := l.denial.Load()
	if d == nil || d.at.Before(since) && d.until.Before(since) {
		return err
	}
	return fmt.Errorf("%w: %v", err, d.err)
}

// deniedSince says whether the server has said since a time that we lack a right.
func (l *link) deniedSince(since time.Time) bool {
	d := l.denial.Load()
	return d != nil && !d.at.Before(since)
}

// closed dials anew when nats.go gave the connection up though nobody asked it to.
func (l *link) closed(nc *nats.Conn) {
	if l.done.Err() != nil || !l.over(nc) {
		return
	}
	l.disconnected(nc.LastError())
	l.wg.Go(l.redial)
}

// over says that the present connection is closed for good. It says so once: who hears it connects anew.
func (l *link) over(nc *nats.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !nc.IsClosed() || l.cur.Load() != nc || l.ended == nc {
		return false
	}
	l.ended = nc
	return true
}

// redial connects anew, until it has, or the link is closed. What is hopeless at the start may be cured while we run: it is told,
// and tried again, as nats.go does over the connections that it keeps.
func (l *link) redial() {
	for n := 1; l.done.Err() == nil; n++ {
		err := l.open(l.done)
		if err == nil {
			l.hooks.back()
			return
		}
		if l.done.Err() == nil {
			l.lose(err)
		}
		sleep(l.done, l.cfg.pause(n))
	}
}

// close ends the connection at once; flush first. A write that hangs is torn down with its socket.
func (l *link) close() {
	l.stop()
	if w := l.wire.Load(); w != nil {
		_ = w.Close()
	}
	if nc := l.conn(); nc != nil {
		nc.Close()
	}
	l.wg.Wait()
	if nc := l.conn(); nc != nil { // a redial may have stored another one meanwhile
		nc.Close()
	}
}

// reads is how often the present socket gave bytes.
func (l *link) reads() uint64 {
	if w := l.wire.Load(); w != nil {
		return w.reads.Load()
	}
	return 0
}

// maxDialed is how many failed dials are kept for an attempt's error; reconnects dial for ever.
const maxDialed = 8

// Dial implements nats.CustomDialer. Servers tell of others (connect_urls), and nats.go goes there when its own are gone, or
// lame. Those are held to the rule of the configured ones: whoever can speak for a server, or to its client, would else get the
// password by naming an address.
func (l *link) Dial(network, address string) (net.Conn, error) {
	if err := l.cfg.mayDial(address); err != nil {
		l.tellOnce(address, err)
		return nil, err
	}
	c, err := l.socket(network, address)
	if err != nil {
		l.mu.Lock()
		if len(l.dialed) < maxDialed {
			l.dialed = append(l.dialed, err)
		}
		l.mu.Unlock()
		return nil, err
	}
	w := &wire{Conn: c}
	l.wire.Store(w)
	return w, nil
}

// socket reads the login's files and dials. A file that cannot be read fails the attempt with its name, as a server that is not
// there does; nats.go tells of its own attempts to read one as of a living connection's errors.
func (l *link) socket(network, address string) (net.Conn, error) {
	if err := l.cfg.readLogin(""); err != nil {
		return nil, err
	}
	dial := l.cfg.dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	ctx, cancel := context.WithTimeout(l.done, l.cfg.DialTimeout)
	defer cancel()
	return dial(ctx, network, address)
}

// mayDial says why a password or token must not go to an address. Where it may not go anywhere without TLS, each configured
// server is loopback (validateURL), and so what is not was told by one of them.
func (c Connection) mayDial(address string) error {
	if c.PlaintextAuth || c.Password.IsZero() && c.Token.IsZero() && !c.loginInURL() || c.secured() {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err == nil && !plaintext.Exposed(host) {
		return nil
	}
	return fmt.Errorf("a server names %s as another: a password or token would go there without TLS; "+
		"use tls:// or set PlaintextAuth", address)
}

// loginInURL says whether a login stands in a URL, and so in each (validateLogins): nats.go takes it along to servers that the
// one there tells of.
func (c Connection) loginInURL() bool {
	return slices.ContainsFunc(c.URLs, holdsLogin)
}

// secured says whether each connection is by TLS: one such URL is enough for nats.go to demand it of all servers.
func (c Connection) secured() bool {
	return c.TLS.wanted() || slices.ContainsFunc(c.URLs, func(u string) bool {
		scheme, _, _ := strings.Cut(strings.ToLower(u), "://")
		return scheme == "tls" || scheme == "wss"
	})
}

// tellOnce tells of an address that is not dialed. nats.go comes back to it for ever.
func (l *link) tellOnce(address string, err error) {
	l.mu.Lock()
	tell := !l.undialed[address] && len(l.undialed) < 100
	if tell {
		if l.undialed == nil {
			l.undialed = make(map[string]bool)
		}
		l.undialed[address] = true
	}
	l.mu.Unlock()
	if tell {
		l.hooks.problem(nil, err)
	}
}

// pause is how long to wait after the nth failure: doubling, with jitter of half, bounded.
func (c Connection) pause(n int) time.Duration {
	d := c.ReconnectWait << min(max(n-1, 0), 16)
	if d <= 0 || d > c.MaxReconnectWait {
		d = c.MaxReconnectWait
	}
	return d/2 + chance.Below(d/2+1)
}

// where names the servers, without the secrets that may stand in a URL.
func (c Connection) where() string {
	var hosts []string
	for _, raw := range c.URLs {
		if u, err := parseURL(raw); err == nil {
			hosts = append(hosts, u.Scheme+"://"+u.Host)
		}
	}
	return strings.Join(hosts, ",")
}

// redact takes out of an error's text whatever of ours is secret.
func (c Connection) redact(err error) error {
	if err == nil {
		return nil
	}
	secrets := []string{c.Password.Reveal(), c.Token.Reveal()}
	for _, raw := range c.URLs {
		if u, perr := url.Parse(raw); perr == nil && u.User != nil {
			secrets = append(secrets, u.User.String())
			if p, ok := u.User.Password(); ok {
				secrets = append(secrets, p)
			} else {
				secrets = append(secrets, u.User.Username()) // a token stands where the user's name does
			}
		}
	}
	text := err.Error()
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "***")
		}
	}
	if text == err.Error() {
		return err
	}
	return &redactedError{text, err}
}

// unredacted is what a server said, to be read and not told: the password may be a word of a subject, too.
func unredacted(err error) string {
	var r *redactedError
	if errors.As(err, &r) {
		err = r.err
	}
	return err.Error()
}

// A redactedError says its own text and is what err is.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string        { return e.text }
func (e *redactedError) Is(target error) bool { return errors.Is(e.err, target) }

// unlisten ends a subscription. What was sent to it is still received, where nc, its connection, is there: else that is over. For
// nats.go writes no UNSUB while it reconnects, and subscribes anew to what is being drained; once that is drained it takes what
// comes, and hands it to nobody.
func unlisten(nc *nats.Conn, sub *nats.Subscription) {
	if nc.IsConnected() {
		_ = sub.Drain() // fails only where the connection is gone
	}
	if !nc.IsConnected() { // perhaps it went meanwhile
		_ = sub.Unsubscribe()
	}
}
