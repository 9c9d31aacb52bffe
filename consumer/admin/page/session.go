package page

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	baseName = "longshore_session"
	// sessionLength is how long a login holds; a restart of the process ends all.
	sessionLength = 12 * time.Hour
	// mostSessions are kept: a further login ends the oldest.
	mostSessions = 256
	// wrongASecond are told that it is not the token; more than those, by all together, to wait. The right one always passes, or
	// strangers could keep everybody out. So it is no bound on guesses, and needs to be none: the token has 16 bytes or more.
	wrongASecond = 5
)

// sessions are who has logged in. A session is a random number in a cookie, of which the hash is kept. Safe for concurrent use.
type sessions struct {
	token string        // empty: nobody can
	wrong *rate.Limiter // tokens

	mu  sync.Mutex
	end map[[sha256.Size]byte]time.Time
}

func newSessions(token string) *sessions {
	return &sessions{token: token, wrong: rate.NewLimiter(wrongASecond, wrongASecond), end: map[[sha256.Size]byte]time.Time{}}
}

// login begins a session where the token is right. It compares digests: see the admin server's own.
func (s *sessions) login(token string, now time.Time) (id string, ok bool) {
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(s.token))
	if s.token == "" || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return "", false
	}
	id = rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room(now)
	s.end[sha256.Sum256([]byte(id))] = now.Add(sessionLength)
	return id, true
}

// room ends the sessions that are over, and the oldest where there are too many.
func (s *sessions) room(now time.Time) {
	for len(s.end) >= mostSessions {
		var oldest [sha256.Size]byte
		first := time.Time{}
		for k, end := range s.end {
			if first.IsZero() || end.Before(first) {
				oldest, first = k, end
			}
		}
		delete(s.end, oldest)
	}
	for k, end := range s.end {
		if !now.Before(end) {
			delete(s.end, k)
		}
	}
}

// has says whether a request comes of a session.
func (s *sessions) has(r *http.Request, now time.Time) bool {
	c, err := r.Cookie(cookieName(r))
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	end, ok := s.end[sha256.Sum256([]byte(c.Value))]
	return ok && now.Before(end)
}

// logout ends a request's session.
func (s *sessions) logout(r *http.Request) {
	if c, err := r.Cookie(cookieName(r)); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.end, sha256.Sum256([]byte(c.Value)))
	}
}

// cookieName has the port that the browser asked: a host's cookies are those of all its ports, and a login at one process would
// end that at another one there.
func cookieName(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if _, no := strconv.ParseUint(port, 10, 16); err != nil || no != nil {
		return baseName
	}
	return baseName + "_" + port
}

// cookie carries a session; without an id it takes the browser's away.
func cookie(r *http.Request, id string) *http.Cookie {
	c := &http.Cookie{ // #nosec G124 -- without TLS it would not come back; the page is then on loopback, or behind who ends TLS
		Name: cookieName(r), Value: id, Path: "/ui/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		MaxAge: int(sessionLength / time.Second),
		Secure: r.TLS != nil || forwardedTLS(r),
	}
	if id == "" {
		c.MaxAge = -1
	}
	return c
}

// forwardedTLS says whether the browser asked with TLS, as says who ends that before us: of several proxies, each of which adds
// how it was asked itself, the first.
func forwardedTLS(r *http.Request) bool {
	proto, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",")
	return strings.EqualFold(strings.TrimSpace(proto), "https")
}
