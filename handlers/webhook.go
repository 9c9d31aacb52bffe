package handlers

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/tracing"
)

// A Webhook POSTs each message's payload to a URL. Its Handle is a consumer.Handler; what the server's answer means is written at
// verdict.
//
// Every request has the headers Longshore-Topic, -Attempt, -Partition and -Offset (where the broker has them), -Key (where the
// message has one) and -Id: topic/partition/offset/id/time in Unix nanoseconds, the same at each delivery, so that the server can
// tell a repeat. Each value is percent-encoded: every byte that is not printable ASCII, and '%' itself. Values over 4 KiB are
// left out and named in Longshore-Omitted. Where the handler's context has a span (package tracing), traceparent and tracestate
// say so.
type Webhook struct {
	client  *http.Client
	host    string
	plain   http.Request // what is the same for all of them
	headers int          // how many a request has, as a rule: a map with room for more costs more than the rest of the request
	config  WebhookConfig
	login   func() (*login, error) // as it is now; a func, so that fmt cannot print it
}

const (
	// drainBytes of an answer's body are read, so that its connection can be used again; a longer body costs the connection.
	drainBytes = 64 << 10
	// drainRedirect is the same for a redirect, whose body is a line of HTML.
	drainRedirect = 2 << 10
	// drainTime is how long a body may take after its headers: the status is known by then.
	drainTime = time.Second
	// maxRedirects are followed on one host.
	maxRedirects = 3
	// quietTime is how long a connection of HTTP/2 may bring nothing until its server is asked whether it is there, and how long
	// that may take until the connection is given up.
	quietTime = 15 * time.Second
)

// NewWebhook checks c and reports all findings at once. It does not dial.
func NewWebhook(c WebhookConfig) (*Webhook, error) {
	c = c.withDefaults()
	if err := c.validate().err(); err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, errors.New("webhook: url: malformed") // validate has parsed it
	}
	w := &Webhook{host: u.Scheme + "://" + u.Host, config: c,
		plain: http.Request{Method: http.MethodPost, URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {c.ContentType}}}}
	// The transport repeats a request with this header (never sent, since it has no value) when the server closes an idle connection
	// at the moment it is used again. Without, each such close would be a failed attempt.
	w.plain.Header["X-Idempotency-Key"] = nil
	if err := c.readToken(); err != nil {
		return nil, fmt.Errorf("webhook: bearer_token_file: %w", err)
	}
	w.login = c.logins(u)
	first, err := w.login()
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	w.headers = len(w.plain.Header) + len(first.headers) + len(c.ForwardHeaders) + maxFields - 1 // a value is seldom omitted
	transport := c.Transport
	if transport == nil {
		if transport, err = c.transport(); err != nil {
			return nil, fmt.Errorf("webhook: %w", err)
		}
	}
	w.client = &http.Client{Transport: transport}
	return w, nil
}

// WebhookFactory makes a Webhook from options, with at least as many connections as the consumer has workers.
func WebhookFactory(s *Setup, o Options) (consumer.Handler, error) {
	w, err := s.webhook(o, WebhookConfig{}, WebhookConfig.single)
	if err != nil {
		return nil, err
	}
	return w.Handle, nil
}

// webhook makes a Webhook from defaults and options, which check may find more in. It is closed with the Setup.
func (s *Setup) webhook(o Options, c WebhookConfig, check func(WebhookConfig, OptionErrors) OptionErrors) (*Webhook, error) {
	c = c.withDefaults()
	c.Timeout = s.within(c.Timeout)
	err := decodeChecked(o, &c, func() OptionErrors {
		return s.checkTimeout(c.Timeout, check(c, c.checkWritten(o, c.validate())))
	})
	if err != nil {
		return nil, err
	}
	c.MaxIdleConnections = max(c.MaxIdleConnections, s.MaxWorkers)
	w, err := NewWebhook(c)
	if err != nil {
		return nil, err
	}
	s.OnClose(w.Close)
	return w, nil
}

// transport is tuned for many requests to one host.
func (c WebhookConfig) transport() (*http.Transport, error) {
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConnsPerHost:    c.MaxIdleConnections,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // the body is thrown away
		ForceAttemptHTTP2:      true,
		// A request that times out ends its connection in HTTP/1 and not in HTTP/2. One that is gone without a word, as where a load
		// balancer has forgotten it, took a hundred attempts, each until its timeout, before there was another.
		HTTP2:           &http.HTTP2Config{SendPingTimeout: quietTime, PingTimeout: quietTime},
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if c.CAFile != "" {
		pool, err := certPool(c.CAFile)
		if err != nil {
			return nil, err
		}
		t.TLSClientConfig.RootCAs = pool
	}
	return t, nil
}

// Close closes idle connections. Call it after the last Handle.
func (w *Webhook) Close() error {
	w.client.CloseIdleConnections()
	return nil
}

// String names the host only: a path or a query may be secret.
func (w *Webhook) String() string { return "webhook to " + w.host }

// Handle sends m and waits for the answer, at most Timeout. Its errors name the host and the status or the cause, neither the
// rest of the URL nor anything of the payload or of the answer's body.
func (w *Webhook) Handle(ctx context.Context, m *consumer.Message) error {
	return w.call(ctx, m.Value, m)
}

// call sends a body, which is m's, or a batch's where m is nil.
func (w *Webhook) call(ctx context.Context, body []byte, m *consumer.Message) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(w.config.Timeout, func() {
		cancel(fmt.Errorf("%w: no answer in %v", consumer.ErrTimeout, w.config.Timeout))
	})
	defer timer.Stop()
	l, err := w.login()
	if err != nil {
		return fmt.Errorf("webhook to %s: its login: %w", w.host, err)
	}
	answer, err := w.send(ctx, body, m, l)
	if err != nil {
		return w.failure(ctx, err, l)
	}
	if answer.Body != http.NoBody {
		timer.Reset(drainTime)
		if answer.StatusCode != http.StatusSwitchingProtocols { // whose body is the connection: the end of ctx ends no read of it
			_, _ = io.CopyN(io.Discard, answer.Body, drainBytes)
		}
		_ = answer.Body.Close()
	}
	if answer.StatusCode == http.StatusMisdirectedRequest { // the next attempt is to have another connection
		w.client.CloseIdleConnections()
	}
	if err := verdict(answer.StatusCode, answer.Header, time.Now(), w.config.MaxRetryAfter); err != nil {
		return fmt.Errorf("webhook to %s: %w", w.host, err)
	}
	return nil
}

// send follows redirects itself: an http.Client begins with a copy of all headers, in case of one.
func (w *Webhook) send(ctx context.Context, body []byte, m *consumer.Message, l *login) (*http.Response, error) {
	r := w.request(ctx, body, m, l)
	for followed := 0; ; followed++ {
		answer, err := w.answer(r)
		if err != nil || followed == maxRedirects {
			return answer, err
		}
		next := redirected(r, answer, l.headers)
		if next == nil {
			return answer, nil
		}
		_, _ = io.CopyN(io.Discard, answer.Body, drainRedirect)
		_ = answer.Body.Close()
		r = next
	}
}

// answer is that to one request. It has a body.
func (w *Webhook) answer(r *http.Request) (*http.Response, error) {
	answer, err := w.client.Transport.RoundTrip(r)
	switch {
	case err != nil:
		return nil, err
	case answer == nil:
		return nil, errNoAnswer
	case answer.Body == nil: // of a transport in a test; http.Client, too, takes that for none
		answer.Body = http.NoBody
	}
	return answer, nil
}

var errNoAnswer = errors.New("the Transport returned neither an answer nor an error")

func (w *Webhook) request(ctx context.Context, body []byte, m *consumer.Message, l *login) *http.Request {
	span := tracing.Headers(ctx)
	r := w.plain.WithContext(ctx)
	r.Header = make(http.Header, w.headers+len(span))
	r.ContentLength = int64(len(body))
	r.Body = http.NoBody
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	if len(body) > 0 {
		r.Body, _ = r.GetBody()
	}
	for k, v := range w.plain.Header {
		r.Header[k] = v
	}
	if m != nil {
		w.describe(r.Header, m)
	}
	if len(span) > 0 {
		delete(r.Header, "Tracestate") // a producer's, which belongs to the traceparent that is replaced
	}
	for _, h := range span {
		r.Header[http.CanonicalHeaderKey(h.Key)] = []string{string(h.Value)}
	}
	for k, v := range l.headers {
		r.Header[k] = v
	}
	return r
}

// describe adds what is known about m, and those of its own headers that are to be forwarded.
func (w *Webhook) describe(h http.Header, m *consumer.Message) {
	var omitted []string
	var fields [maxFields]field
	known := origin(fields[:0], m)
	values := make([]string, len(known)) // one allocation for all
	for i, f := range known {
		values[i] = f.value
		h[f.header] = values[i : i+1 : i+1]
	}
	for _, name := range w.config.ForwardHeaders {
		if v, ok := m.Headers.Get(name); !ok {
			continue
		} else if validHeaderValue(v) {
			h[http.CanonicalHeaderKey(name)] = []string{string(v)}
		} else {
			omitted = append(omitted, strings.ToLower(name))
		}
	}
	if omitted != nil {
		h[headerOmitted] = []string{strings.Join(append(h[headerOmitted], omitted...), ",")}
	}
}

// failure is the error of a request without an answer: retried. That of a Transport with an http.Client in it has the URL in it.
func (w *Webhook) failure(ctx context.Context, err error, l *login) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("webhook to %s: %w", w.host, cause)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if n := net.Error(nil); errors.As(err, &n) && n.Timeout() { // of a connection, or a TLS handshake: less than Timeout
		return fmt.Errorf("webhook to %s: %w: %w", w.host, consumer.ErrTimeout, cutError{err})
	}
	if text := l.redact(err.Error(), false); text != err.Error() { // the server has said back what it was sent
		return fmt.Errorf("webhook to %s: %s", w.host, cutText(text, maxErrorText))
	}
	return fmt.Errorf("webhook to %s: %w", w.host, cutError{err})
}

// cutError bounds the text of an error that a server has a hand in.
type cutError struct{ err error }

// maxErrorText is the most bytes of it.
const maxErrorText = 256

func (e cutError) Error() string { return cutText(e.err.Error(), maxErrorText) }
func (e cutError) Unwrap() error { return e.err }

// cutText is at most n bytes of s, and "..." where there was more.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}
