package page

import (
	"embed"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/rs/zerolog"
)

//go:embed static
var static embed.FS

// A site is a page as it is served.
type site struct {
	all     []*watched // by name
	version string     // of the static files: their address changes with them
}

// mostScans of dead letters are read at once, by all requests of those who have logged in together, and as many by all others:
// whoever reaches the page can keep the latter busy. These have pauses: see restAfter.
const mostScans = 4

// newSite makes the handler of everything below /ui/.
func newSite(p *Page, setup admin.PageSetup, all []*watched) http.Handler {
	s := &site{all: all, version: staticVersion()}
	f := &frame{sessions: newSessions(setup.Token), log: setup.Logger, version: s.version}
	for _, w := range all {
		f.consumers = append(f.consumers, w.name)
	}
	refusals := setup.Logger.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Second})
	changes := &changes{log: setup.Logger, events: p.events}
	d := &details{frame: f, jobs: p.jobs, hideKeys: p.cfg.HidePayloads}
	return guard(s.routes(
		&door{frame: f, refusals: refusals},
		&overviews{frame: f, all: all, events: p.events, hideErrors: p.cfg.HidePayloads},
		d,
		&controls{frame: f, details: d, changes: changes},
		&desk{frame: f, changes: changes, jobs: p.jobs, hidePayloads: p.cfg.HidePayloads,
			memberScans: make(chan struct{}, mostScans), scans: make(chan struct{}, mostScans)},
	))
}

func (s *site) routes(in *door, all *overviews, one *details, k *controls, letters *desk) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ui/static/{version}/{file}", s.file)
	mux.HandleFunc("GET /ui/{$}", all.overview)
	mux.HandleFunc("GET /ui/live", all.overviewLive)
	mux.HandleFunc("GET /ui/events", all.eventsPage)
	mux.HandleFunc("GET /ui/events/live", all.eventsLive)
	mux.HandleFunc("GET /ui/login", in.loginPage)
	mux.HandleFunc("POST /ui/login", in.login)
	mux.HandleFunc("POST /ui/logout", in.logout)
	mux.HandleFunc("GET /ui/c/{name}", s.of(one.detail))
	mux.HandleFunc("GET /ui/c/{name}/live", s.of(one.detailLive))
	mux.HandleFunc("POST /ui/c/{name}/pause", in.member(s.of(k.pause)))
	mux.HandleFunc("POST /ui/c/{name}/resume", in.member(s.of(k.resume)))
	mux.HandleFunc("POST /ui/c/{name}/limits", in.member(s.of(k.setWorkers)))
	mux.HandleFunc("POST /ui/c/{name}/limits/{limit}", in.member(s.of(k.setLimit)))
	mux.HandleFunc("GET /ui/c/{name}/letters", s.of(letters.letters))
	mux.HandleFunc("GET /ui/c/{name}/letters/{place...}", s.of(letters.letter))
	mux.HandleFunc("POST /ui/c/{name}/letters/{place...}", in.member(s.of(letters.editLetter)))
	mux.HandleFunc("POST /ui/c/{name}/replay", in.member(s.of(letters.replay)))
	mux.HandleFunc("POST /ui/c/{name}/purge", in.member(s.of(letters.purge)))
	mux.HandleFunc("GET /ui/c/{name}/job", s.of(letters.jobLive))
	mux.HandleFunc("POST /ui/c/{name}/job/stop", in.member(s.of(letters.stopJob)))
	mux.HandleFunc("POST /ui/c/{name}/job/continue", in.member(s.of(letters.continueJob)))
	return mux
}

// of finds the consumer that the path names.
func (s *site) of(next func(http.ResponseWriter, *http.Request, *watched)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, one := range s.all {
			if one.name == r.PathValue("name") {
				next(w, r, one)
				return
			}
		}
		http.Error(w, "no such consumer", http.StatusNotFound)
	}
}

// file answers a static file. Its address has the files' version, so a browser may keep it.
func (s *site) file(w http.ResponseWriter, r *http.Request) {
	sub, err := fs.Sub(static, "static")
	if err != nil || r.PathValue("version") != s.version || strings.HasPrefix(r.PathValue("file"), ".") {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "max-age=31536000, immutable")
	http.ServeFileFS(w, r, sub, r.PathValue("file"))
}
