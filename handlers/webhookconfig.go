package handlers

import (
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/namedfile"
	"github.com/longshoremq/longshore/internal/plaintext"
)

// WebhookConfig says where a Webhook sends to, and how.
type WebhookConfig struct {
	// URL to POST to: http or https, with neither user nor password (see Basic). Errors and logs show its host only. Required.
	URL string `yaml:"url"`
	// Headers to send with each request, such as an API key; the values are kept secret. Defaults to none.
	Headers map[string]broker.Secret `yaml:"headers"`
	// BearerToken is sent as "Authorization: Bearer …". One of broker.SecretFile is read again for each request, as those of Headers
	// and Basic are, so it can be replaced while the program runs. Defaults to none.
	BearerToken broker.Secret `yaml:"bearer_token"`
	// BearerTokenFile is a file that holds it instead. Defaults to none.
	BearerTokenFile string `yaml:"bearer_token_file"`
	// Basic is sent as basic authentication. Defaults to none.
	Basic BasicAuth `yaml:"basic"`
	// AllowInsecureAuth lets credentials (BearerToken, Basic, Headers) be sent over plain http to a host that is not this one. Set
	// it where something else protects the connection, a service mesh for example. Defaults to false.
	AllowInsecureAuth bool `yaml:"allow_insecure_auth"`
	// CAFile has the PEM certificates of authorities to trust instead of the system's. Defaults to the system's.
	CAFile string `yaml:"ca_file"`

	// ContentType of the payload. Defaults to application/octet-stream.
	ContentType string `yaml:"content_type"`
	// ForwardHeaders names headers of the message that are sent along under their own names, such as traceparent, ce-type or
	// Content-Type. A value that is not a printable line of ASCII, or over 4 KiB, is left out and named in Longshore-Omitted; in a
	// batch one that is no UTF-8, or over 4 KiB, in the element's omitted. Defaults to none.
	ForwardHeaders []string `yaml:"forward_headers"`

	// Encoding is how payloads stand in the array of a batch: json, as what they are; text, as strings; base64. What is not that is
	// dead-lettered without being sent. Only for batches. Defaults to json.
	Encoding string `yaml:"encoding"`

	// Timeout is how long a request may take until its answer's headers. Keep it below the consumer's Timeout. Defaults to 30 s.
	Timeout time.Duration `yaml:"timeout"`
	// MaxRetryAfter is the longest wait that a server can ask for. Defaults to 5 min.
	MaxRetryAfter time.Duration `yaml:"max_retry_after"`
	// MaxIdleConnections are kept for the next request. Choose it at least as high as the number of workers, or connections are made
	// again and again; by name it is raised to that. Defaults to 64.
	MaxIdleConnections int `yaml:"max_idle_connections"`

	// Transport replaces the HTTP transport, for tests and for what has no option here, such as client certificates. CAFile and
	// MaxIdleConnections are not used then. Defaults to one of its own.
	Transport http.RoundTripper `yaml:"-"`
}

// BasicAuth is a user and a password.
type BasicAuth struct {
	// User must not have a colon in it.
	User string `yaml:"user"`
	// Password of User.
	Password broker.Secret `yaml:"password"`
}

func (c WebhookConfig) withDefaults() WebhookConfig {
	if c.ContentType == "" {
		c.ContentType = "application/octet-stream"
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.MaxRetryAfter == 0 {
		c.MaxRetryAfter = 5 * time.Minute
	}
	if c.MaxIdleConnections == 0 {
		c.MaxIdleConnections = 64
	}
	return c
}

func (c WebhookConfig) validate() (errs OptionErrors) {
	u := c.checkURL(&errs)
	if err := c.readToken(); err != nil {
		errs.add("bearer_token_file", "%v", err)
	}
	c.checkHeaders(&errs)
	c.checkAuth(u, &errs)
	if c.CAFile != "" {
		if _, err := certPool(c.CAFile); err != nil {
			errs.add("ca_file", "%v", err)
		}
	}
	if c.Timeout <= 0 {
		errs.add("timeout", "is %v, want more than 0", c.Timeout)
	}
	if c.MaxRetryAfter <= 0 {
		errs.add("max_retry_after", "is %v, want more than 0", c.MaxRetryAfter)
	}
	if c.MaxIdleConnections < 1 {
		errs.add("max_idle_connections", "is %d, want at least 1", c.MaxIdleConnections)
	}
	return errs
}

// checkWritten finds what is written in the options and empty, as where a variable is. In Go that is none; in a file somebody
// meant one, and a request without its login is answered with 401, as often as it is sent.
func (c WebhookConfig) checkWritten(o Options, errs OptionErrors) OptionErrors {
	for name, value := range map[string]string{"bearer_token": c.BearerToken.Reveal(),
		"bearer_token_file": c.BearerTokenFile, "ca_file": c.CAFile} {
		if _, written := o.values[name]; written && value == "" {
			errs.add(name, "is empty")
		}
	}
	if _, written := o.values["basic"]; written && c.Basic.User == "" && c.Basic.Password.IsZero() {
		errs.add("basic.user", "is required")
	}
	return errs
}

// readToken takes BearerToken from its file.
func (c *WebhookConfig) readToken() error {
	switch {
	case c.BearerTokenFile == "":
		return nil
	case !c.BearerToken.IsZero():
		return errors.New("is set, and so is bearer_token: set one")
	}
	if _, err := namedfile.Read(c.BearerTokenFile); err != nil { // a pipe among it
		return err
	}
	token, err := broker.SecretFile(c.BearerTokenFile)
	c.BearerToken = token
	return err
}

// single finds what is only for batches.
func (c WebhookConfig) single(errs OptionErrors) OptionErrors {
	if c.Encoding != "" {
		errs.add("encoding", "is set, and this is no batch: a payload is sent as it is")
	}
	return errs
}

// checkURL never shows the URL, which may have a secret in it. It returns nil when the URL is of no use.
func (c WebhookConfig) checkURL(errs *OptionErrors) *url.URL {
	if c.URL == "" {
		errs.add("url", "is required")
		return nil
	}
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		errs.add("url", "is malformed")
		return nil
	case u.Scheme != "http" && u.Scheme != "https":
		errs.add("url", "wants http:// or https:// at its start")
		return nil
	case u.Hostname() == "" || !validHost(u):
		errs.add("url", "has no host, or a malformed one")
		return nil
	case u.User != nil:
		errs.add("url", "has a user or password in it: use basic")
	case u.Fragment != "":
		errs.add("url", "has a fragment (#), which is never sent")
	}
	return u
}

// ours are headers that the request itself decides about.
var ours = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Te", "Trailer", "Upgrade",
	"Expect",
	"Proxy-Authorization", "Proxy-Connection", "X-Idempotency-Key"}

func (c WebhookConfig) checkHeaders(errs *OptionErrors) {
	name := func(path, name string) {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !validHeaderName(name):
			errs.add(path, "%q is no name for a header", name)
		case slices.Contains(ours, canonical), strings.HasPrefix(canonical, broker.ReservedPrefix):
			errs.add(path, "%q cannot be set", name)
		}
	}
	first := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(c.Headers)) {
		v, canonical := c.Headers[k], http.CanonicalHeaderKey(k)
		if other, twice := first[canonical]; twice {
			errs.add("headers."+k, "is %q in another way: case does not matter", other)
		}
		first[canonical] = k
		name("headers."+k, k)
		if !validHeaderValue([]byte(v.Reveal())) {
			errs.add("headers."+k, "has a value that cannot be sent: want one line of printable ASCII")
		}
	}
	for i, k := range c.ForwardHeaders {
		name(fmt.Sprintf("forward_headers[%d]", i), k)
		if http.CanonicalHeaderKey(k) == "Authorization" {
			errs.add(fmt.Sprintf("forward_headers[%d]", i), "%q would let a producer speak in this program's name", k)
		}
	}
	if !validHeaderValue([]byte(c.ContentType)) {
		errs.add("content_type", "want one line of printable ASCII")
	}
}

func (c WebhookConfig) checkAuth(u *url.URL, errs *OptionErrors) {
	set := 0
	if !c.BearerToken.IsZero() {
		set++
		if !validHeaderValue([]byte(c.BearerToken.Reveal())) {
			errs.add("bearer_token", "cannot be sent: want one line of printable ASCII")
		}
	}
	if c.Basic.User != "" || !c.Basic.Password.IsZero() {
		set++
		if c.Basic.User == "" || strings.Contains(c.Basic.User, ":") {
			errs.add("basic.user", "is required with a password, and has no colon in it")
		}
	}
	for k := range c.Headers {
		if http.CanonicalHeaderKey(k) == "Authorization" {
			set++
		}
	}
	if set > 1 {
		errs.add("bearer_token", "only one of bearer_token, basic and headers.Authorization can be sent")
	}
	if u != nil && u.Scheme == "http" && (set > 0 || len(c.Headers) > 0) && !c.AllowInsecureAuth && plaintext.Exposed(u.Hostname()) {
		errs.add("url", "is plain http, over which bearer_token, basic and headers would be readable: use https, or set "+
			"allow_insecure_auth")
	}
}

// A login is what a request has that is secret.
type login struct {
	headers http.Header
	redact  func(text string, cut bool) string
	of      []string // what its files held
}

// logins returns what makes the login of a request. What is of a file is read each time: a token that was replaced would be
// refused until the program is started again. It closes over the secrets, so that they are in no field that could be printed.
func (c WebhookConfig) logins(u *url.URL) func() (*login, error) {
	files := slices.DeleteFunc(slices.AppendSeq([]broker.Secret{c.BearerToken, c.Basic.Password}, maps.Values(c.Headers)),
		func(s broker.Secret) bool { return !s.Rereads() })
	var latest atomic.Pointer[login]
	return func() (*login, error) {
		held := make([]string, len(files))
		for i, f := range files {
			var err error
			if held[i], err = f.Read(); err != nil {
				if l := latest.Load(); l != nil { // it is being replaced, or was taken away: perhaps the old one still holds
					return l, nil
				}
				return nil, err
			}
		}
		if l := latest.Load(); l != nil && slices.Equal(l.of, held) {
			return l, nil
		}
		var errs OptionErrors
		c.checkHeaders(&errs)
		c.checkAuth(u, &errs)
		if err := errs.err(); err != nil {
			return nil, err
		}
		l := &login{headers: c.credentials(), redact: c.redact(u), of: held}
		latest.Store(l)
		return l, nil
	}
}

// credentials are the headers that are secret.
func (c WebhookConfig) credentials() http.Header {
	add := http.Header{}
	for k, v := range c.Headers {
		add.Set(k, v.Reveal())
	}
	if !c.BearerToken.IsZero() {
		add.Set("Authorization", "Bearer "+c.BearerToken.Reveal())
	}
	if c.Basic.User != "" {
		r := http.Request{Header: add}
		r.SetBasicAuth(c.Basic.User, c.Basic.Password.Reveal())
	}
	return add
}

// redact puts *** for the secrets of a request, the URL's path and query among them, into the text of an error.
func (c WebhookConfig) redact(u *url.URL) func(text string, cut bool) string {
	secrets := []string{c.BearerToken.Reveal(), c.Basic.Password.Reveal()}
	add := c.credentials()
	for _, values := range add {
		secrets = append(secrets, values...)
	}
	if scheme, alone, ok := strings.Cut(add.Get("Authorization"), " "); ok {
		secrets = append(secrets, alone)
		if login, err := base64.StdEncoding.DecodeString(alone); err == nil && strings.EqualFold(scheme, "Basic") {
			_, password, _ := strings.Cut(string(login), ":")
			secrets = append(secrets, password)
		}
	}
	for _, part := range []string{u.RequestURI(), u.Path, u.RawQuery} {
		if len(part) >= minLine {
			secrets = append(secrets, part)
		}
	}
	parts := strings.Split(u.Path, "/")
	for _, values := range u.Query() {
		parts = append(parts, values...)
	}
	for _, part := range parts { // as in https://hooks.example/T0123/B4567/<secret>
		if len(part) >= minPart && strings.ContainsAny(part, notInWords) {
			secrets = append(secrets, part)
		}
	}
	return hide(secrets)
}

const (
	// minPart is the shortest part of a URL that is looked for by itself, where something in it is in no word of a path.
	minPart    = 16
	notInWords = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// certPool reads certificates from a PEM file.
func certPool(path string) (*x509.CertPool, error) {
	pem, err := namedfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("reading certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("no PEM certificate in " + path)
	}
	return pool, nil
}

// validHost: url.Parse lets through what no request can be sent to.
func validHost(u *url.URL) bool {
	if p := u.Port(); p != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return false
		}
	}
	return !strings.ContainsFunc(u.Hostname(), func(c rune) bool {
		return c <= ' ' || c >= 0x7f ||
			strings.ContainsRune(`/\"<>@`, c)
	})
}

// validHeaderName: a token (RFC 9110, 5.6.2).
func validHeaderName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

// validHeaderValue: printable ASCII without blanks at its ends, and not empty.
func validHeaderValue(v []byte) bool {
	if len(v) == 0 || len(v) > maxField || v[0] == ' ' || v[len(v)-1] == ' ' {
		return false
	}
	return !slices.ContainsFunc(v, func(c byte) bool { return c < ' ' || c > '~' })
}
