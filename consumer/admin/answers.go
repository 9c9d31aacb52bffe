package admin

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Bounds on the memory of answers.
const (
	// mostMaking answers are put together at once: those of /metrics and of what is in hand take long.
	mostMaking = 4
	// makingPatience is for how long one waits for that; who scrapes waits for about as long.
	makingPatience = 5 * time.Second
	// mostHeld bytes of large answers are kept while they are written; a single one may be larger.
	mostHeld = 8 << 20
	// largeAnswer is from where on they count: the largest that all connections together may well have.
	largeAnswer = 32 << 10
	// answerPart bytes are written at once: after each it is known that the client reads.
	answerPart = 16 << 10
)

// answers are the large ones that are on their way to clients. A new one is always let in. Where that makes too many bytes, those
// are cut off first whose clients have not read for longest: so clients that do not read take memory from each other, and who
// reads gets its answer.
type answers struct {
	most int

	mu   sync.Mutex
	all  map[*answer]struct{}
	held int
	last uint64
}

// An answer is a ResponseWriter whose large writes are among answers.
type answer struct {
	http.ResponseWriter
	among *answers

	// Under answers.mu, while it is there:
	held  int
	since uint64 // when its client last read, by a number that only grows
}

func newAnswers(most int) *answers { return &answers{most: most, all: map[*answer]struct{}{}} }

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (n int, err error) {
	if len(p) < largeAnswer {
		return a.ResponseWriter.Write(p)
	}
	a.among.begin(a, len(p))
	defer a.among.end(a)
	for n < len(p) && err == nil {
		var m int
		m, err = a.ResponseWriter.Write(p[n:min(len(p), n+answerPart)])
		n += m
		a.among.moved(a)
	}
	return n, err
}

func (as *answers) begin(a *answer, bytes int) {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.last++
	a.held, a.since = bytes, as.last
	as.all[a] = struct{}{}
	as.held += bytes
	for as.held > as.most && len(as.all) > 1 {
		victim := as.stalled(a)
		as.drop(victim)
		// Under the lock: it has not ended, so its connection has no other answer yet.
		_ = http.NewResponseController(victim.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
	}
}

// stalled is the one whose client has not read for longest, but for the newest.
func (as *answers) stalled(newest *answer) (victim *answer) {
	for a := range as.all {
		if a != newest && (victim == nil || a.since < victim.since) {
			victim = a
		}
	}
	return victim
}

func (as *answers) moved(a *answer) {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.last++
	a.since = as.last
}

func (as *answers) end(a *answer) {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.drop(a)
}

// drop does not count one any more. It has the lock.
func (as *answers) drop(a *answer) {
	if _, ok := as.all[a]; ok {
		delete(as.all, a)
		as.held -= a.held
	}
}

// made answers with what next writes, which is put together in memory: only so many at once, each of them for no longer than that
// takes. Whoever does not read holds none of those places.
func (s *Server) made(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		patience := time.NewTimer(makingPatience)
		defer patience.Stop()
		select {
		case s.making <- struct{}{}:
		case <-r.Context().Done():
			return
		case <-patience.C:
			http.Error(w, "too many others ask at this moment; try again", http.StatusServiceUnavailable)
			return
		}
		m := &inMemory{header: w.Header(), code: http.StatusOK}
		func() {
			defer func() { <-s.making }() // also where it panics
			next(m, r)
		}()
		w.Header().Set("Content-Length", strconv.Itoa(m.Len()))
		w.WriteHeader(m.code)
		_, _ = w.Write(m.Bytes())
	}
}

// inMemory is an answer that is kept until it is whole.
type inMemory struct {
	bytes.Buffer
	header http.Header
	code   int
}

func (m *inMemory) Header() http.Header  { return m.header }
func (m *inMemory) WriteHeader(code int) { m.code = code }
