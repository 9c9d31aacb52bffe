package handlers

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/consumer"
)

// FuzzVerdict: whatever a server answers, only 2xx acks, only a 4xx that is about the request gives up, and what Retry-After asks
// for is never before now. For 413 and 503 it counts that it is there, whatever it says. A whole number is that many seconds, and
// a date one that far from the answer's own.
func FuzzVerdict(f *testing.F) {
	for i, after := range []string{"", "0", "120", "99999999999999999999", "-1", "+5", "1.5", " 7 ", "٣",
		"Fri, 31 Dec 1999 23:59:59 GMT", "Friday, 31-Dec-99 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT",
		"Fri, 31 Dec 9999 23:59:59 GMT"} {
		f.Add([]int{200, 204, 413, 400, 404, 408, 421, 425, 429, 500, 503, 599, 0}[i], after, "Fri, 31 Dec 1999 23:59:58 GMT")
	}
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, status int, after, date string) {
		h := http.Header{"Retry-After": {after}, "Date": {date}}
		err := verdict(status, h, now, time.Hour)
		if acked := status >= 200 && status <= 299; acked != (err == nil) {
			t.Fatalf("%d: %v", status, err)
		}
		wait, there := retryAfter(h, now)
		refused := status >= 400 && status <= 499 && status != 401 && status != 407 && status != 408 && status != 421 &&
			status != 425 && status != 429 && (status != 413 || !there)
		if consumer.IsPermanent(err) != refused {
			t.Errorf("%d: %v is permanent: %v", status, err, !refused)
		}
		if consumer.IsOverloaded(err) != (status == 429 || status == 503 && there) {
			t.Errorf("%d after %v: %v", status, wait, err)
		}
		n, nerr := strconv.ParseUint(strings.TrimSpace(after), 10, 31)
		at, aerr := http.ParseTime(strings.TrimSpace(after))
		from, derr := http.ParseTime(date)
		switch {
		case wait < 0:
			t.Errorf("%q: %v", after, wait)
		case nerr == nil && wait != time.Duration(n)*time.Second:
			t.Errorf("%q: %v, want %d s", after, wait, n)
		case aerr == nil && derr == nil && wait != max(0, at.Sub(from)):
			t.Errorf("%q at %q: %v, want %v", after, date, wait, at.Sub(from))
		}
	})
}
