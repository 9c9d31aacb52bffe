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
	page     *Page
	all      []*watched // by name
	sessions *sessions
	scans    chan struct{} // bounds how many requests read dead letters at once
	log      zerolog.Logger
	refusals zerolog.Logger // sampled
	version  string         // of the static files: their address changes with them
}

// mostScans of dead letters are read at once, by all requests together.
const mostScans = 4

// newSite makes the handler of everything below /ui/.
func newSite(p *Page, setup admin.PageSetup, all []*watched) http.Handler {
	s := &site{
		page: p, all: all, sessions: newSessions(setup.Token), scans: make(chan struct{}, mostScans), log: setup.Logger,
		refusals: setup.Logger.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Second}), version: staticVersion(),
	}
	return guard(s.routes())
}

func (s *site) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ui/static/{version}/{file}", s.file)
	mux.HandleFunc("GET /ui/{$}", s.overview)
	mux.HandleFunc("GET /ui/live", s.overviewLive)
	mux.HandleFunc("GET /ui/events", s.eventsPage)
	mux.HandleFunc("GET /ui/events/live", s.eventsLive)
	mux.HandleFunc("GET /ui/login", s.loginPage)
	mux.HandleFunc("POST /ui/login", s.login)
	mux.HandleFunc("POST /ui/logout", s.logout)
	mux.HandleFunc("GET /ui/c/{name}", s.of(s.detail))
	mux.HandleFunc("GET /ui/c/{name}/live", s.of(s.detailLive))
	mux.HandleFunc("POST /ui/c/{name}/pause", s.member(s.of(s.pause)))
	mux.HandleFunc("POST /ui/c/{name}/resume", s.member(s.of(s.resume)))
	mux.HandleFunc("POST /ui/c/{name}/limits", s.member(s.of(s.setWorkers)))
	mux.HandleFunc("POST /ui/c/{name}/limits/{limit}", s.member(s.of(s.setLimit)))
	mux.HandleFunc("GET /ui/c/{name}/letters", s.of(s.letters))
	mux.HandleFunc("GET /ui/c/{name}/letters/{place...}", s.of(s.letter))
	mux.HandleFunc("POST /ui/c/{name}/letters/{place...}", s.member(s.of(s.editLetter)))
	mux.HandleFunc("POST /ui/c/{name}/replay", s.member(s.of(s.replay)))
	mux.HandleFunc("POST /ui/c/{name}/purge", s.member(s.of(s.purge)))
	mux.HandleFunc("GET /ui/c/{name}/job", s.of(s.jobLive))
	mux.HandleFunc("POST /ui/c/{name}/job/stop", s.member(s.of(s.stopJob)))
	mux.HandleFunc("POST /ui/c/{name}/job/continue", s.member(s.of(s.continueJob)))
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

// loginPage shows the form.
func (s *site) loginPage(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, http.StatusOK, "login", loginView{shell: s.shell(r, "Log in"), None: s.sessions.token == ""})
}

type loginView struct {
	shell
	None  bool // there is no token
	Wrong string
}

// maxLogin bounds the form of the login.
const maxLogin = 4 << 10

func (s *site) login(w http.ResponseWriter, r *http.Request) {
	refuse := func(code int, why string) {
		s.refused(r, code)
		s.show(w, r, code, "login", loginView{shell: s.shell(r, "Log in"), None: s.sessions.token == "", Wrong: why})
	}
	if !s.sessions.tries.Allow() {
		refuse(http.StatusTooManyRequests, "There were too many tries. Wait a moment.")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	id, ok := s.sessions.login(r.PostFormValue("token"), time.Now())
	if !ok {
		refuse(http.StatusUnauthorized, "That is not the token.")
		return
	}
	http.SetCookie(w, cookie(r, id))
	http.Redirect(w, r, "/ui/", http.StatusSeeOther)
}

func (s *site) logout(w http.ResponseWriter, r *http.Request) {
	s.sessions.logout(r)
	http.SetCookie(w, cookie(r, ""))
	http.Redirect(w, r, "/ui/", http.StatusSeeOther)
}

// did tells the log, and the page's own list of events, what somebody changed.
func (s *site) did(r *http.Request, w *watched, fields map[string]any) {
	for _, log := range []zerolog.Logger{s.log, zerolog.New(s.page.events)} {
		log.Info().Str("event", "admin_control").Str("consumer", w.name).Str("path", r.URL.Path).Str("remote",
			r.RemoteAddr).Fields(fields).Send()
	}
}
