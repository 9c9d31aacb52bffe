package handlers

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/consumer"
)

// verdict says what an answer means for the message. It has no clock and no I/O.
//
//	2xx            acked
//	429            retried, after what Retry-After says, at most longest; and the pool is told that the server has enough to do
//	503            the same where it has a Retry-After, whatever it says; without one it may be down, and is retried
//	401, 407       retried, after what Retry-After says: it is the login, which all messages have, and which is mended elsewhere
//	408, 425       the same
//	421            the same: the server means the connection, and not the request
//	413            the same where it has a Retry-After, which says that it is temporary (RFC 9110, 15.5.14); else permanent
//	other 4xx      permanent: the request is wrong, and the next one will be the same
//	3xx            retried with backoff: a redirect that is not followed
//	anything else  retried, after what Retry-After says
//
// A Retry-After of 0, in the past or that cannot be read is there all the same, and means the backoff.
func verdict(status int, h http.Header, now time.Time, longest time.Duration) error {
	if status >= 200 && status <= 299 {
		return nil
	}
	err := fmt.Errorf("status %d", status)
	if text := http.StatusText(status); text != "" {
		err = fmt.Errorf("status %d %s", status, text)
	}
	wait, there := retryAfter(h, now)
	wait = min(wait, longest)
	switch {
	case status >= 300 && status <= 399:
		return fmt.Errorf("%w: not followed (see docs/handlers.md)", err)
	case status == http.StatusUnauthorized, status == http.StatusProxyAuthRequired, status == http.StatusRequestTimeout,
		status == http.StatusMisdirectedRequest, status == http.StatusTooEarly, status == http.StatusTooManyRequests,
		status == http.StatusRequestEntityTooLarge && there, status >= 500:
		if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable && there {
			return consumer.Overloaded(err, wait)
		}
		if wait > 0 {
			return consumer.RetryAfter(err, wait)
		}
		return err
	case status >= 400:
		return consumer.Permanent(err)
	}
	return err
}

// retryAfter is the wait that Retry-After asks for (RFC 9110, 10.2.3: seconds or a date), or 0, and whether there is one. A date
// counts from the answer's own Date, where it has one, so that the two clocks need not agree.
func retryAfter(h http.Header, now time.Time) (wait time.Duration, there bool) {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0, false
	}
	if strings.Trim(text, "0123456789") == "" {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			n = 1<<31 - 1 // too large for us is surely longer than the longest
		}
		return time.Duration(n) * time.Second, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, true
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return max(0, at.Sub(now)), true
}

// redirected is r again, to where its answer leads; nil: that is not followed, and ends with the redirect as the answer. Followed
// is a redirect that repeats the POST (307, 308) on the same host, from http to https or with the same scheme and port. Others
// (301, 302, 303) would become a GET without the payload, and its 200 would ack a message that nobody got. private are the
// headers that go along only where the port, too, says that it is the same server: 80 and then 443, or one number.
func redirected(r *http.Request, answer *http.Response, private http.Header) *http.Request {
	location := answer.Header.Get("Location")
	if answer.StatusCode != http.StatusTemporaryRedirect && answer.StatusCode != http.StatusPermanentRedirect || location == "" {
		return nil
	}
	to, err := r.URL.Parse(location)
	if err != nil {
		return nil
	}
	upgrade := r.URL.Scheme == "http" && to.Scheme == "https"
	from, at := port(r.URL), port(to)
	if same := r.URL.Scheme == to.Scheme && from == at; !(same || upgrade) || !strings.EqualFold(r.URL.Hostname(), to.Hostname()) {
		return nil
	}
	next := r.WithContext(r.Context())
	next.URL, next.Host = to, to.Host
	if from != at && (from != "80" || at != "443") {
		next.Header = r.Header.Clone() // the transport may still read the one of r
		for name := range private {
			delete(next.Header, name)
		}
	}
	if r.Body != http.NoBody {
		next.Body, _ = r.GetBody() // it cannot fail
	}
	return next
}

// port is u's, also where it goes without saying.
func port(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}
