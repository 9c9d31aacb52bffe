package page

import (
	"net/http"
	"time"

	"github.com/rs/zerolog"
)

// A door lets those in who have logged in, and tells of those who have not.
type door struct {
	*frame
	refusals zerolog.Logger // sampled
}

// loginPage shows the form.
func (d *door) loginPage(w http.ResponseWriter, r *http.Request) {
	d.show(w, r, http.StatusOK, "login", loginView{shell: d.shell(r, "Log in"), None: d.sessions.token == ""})
}

type loginView struct {
	shell
	None  bool // there is no token
	Wrong string
}

// maxLogin bounds the form of the login.
const maxLogin = 4 << 10

func (d *door) login(w http.ResponseWriter, r *http.Request) {
	refuse := func(code int, why string) {
		d.refused(r, code)
		d.show(w, r, code, "login", loginView{shell: d.shell(r, "Log in"), None: d.sessions.token == "", Wrong: why})
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	id, ok := d.sessions.login(r.PostFormValue("token"), time.Now())
	switch {
	case ok:
	case !d.sessions.wrong.Allow():
		refuse(http.StatusTooManyRequests, "There were too many tries. Wait a moment.")
		return
	default:
		refuse(http.StatusUnauthorized, "That is not the token.")
		return
	}
	http.SetCookie(w, cookie(r, id))
	http.Redirect(w, r, "/ui/", http.StatusSeeOther)
}

func (d *door) logout(w http.ResponseWriter, r *http.Request) {
	d.sessions.logout(r)
	http.SetCookie(w, cookie(r, ""))
	http.Redirect(w, r, "/ui/", http.StatusSeeOther)
}

// member lets only those in who have logged in; all others are sent to the login. Its form is read here, for nobody else's is.
func (d *door) member(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !d.sessions.has(r, time.Now()) {
			d.refused(r, http.StatusUnauthorized)
			http.Redirect(w, r, "/ui/login", http.StatusSeeOther)
			return
		}
		if err := r.ParseForm(); err != nil {
			d.fail(w, r, http.StatusBadRequest, err)
			return
		}
		next(w, r)
	}
}

// refused tells of what was not done; at most ten lines a second.
func (d *door) refused(r *http.Request, code int) {
	d.refusals.Warn().Str("event", "admin_refused").Str("route", r.Pattern).Str("remote", r.RemoteAddr).Int("status", code).Send()
}
