package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin/page/internal/chart"
	"github.com/longshoremq/longshore/deadletters"
	"github.com/rs/zerolog"
)

//go:embed templates
var templateFiles embed.FS

// templates escape what they are given for where it stands. What others wrote (topics, keys, errors, payloads) goes through plain
// or plainLines besides, which escape what HTML lets pass.
var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"plain":   func(s string) string { return plain(s, fieldBytes) },
	"segment": url.PathEscape,
	"place":   deadletters.FormatPlace,
	"whole":   chart.Whole,
	"known":   known,
	"retries": retries,
	"number":  number,
	"ago":     func(now, at time.Time) string { return duration(now.Sub(at)) },
	"until":   func(now, at time.Time) string { return duration(at.Sub(now)) },
	"clock":   clock,
	"moment":  moment,
	"message": messageName,
	"key":     keyText,
	"share":   share,
	"error":   errorText,
}).ParseFS(templateFiles, "templates/*.html"))

// known writes a number that may be unknown.
func known(n *int64) string {
	if n == nil {
		return "–"
	}
	return chart.Whole(*n)
}

// retries are what failed and waits here for its next attempt.
func retries(s consumer.Stats) int { return s.Parked - s.PutOff }

// number writes a figure that may be unknown.
func number(f float64) string {
	if math.IsNaN(f) {
		return "–"
	}
	return chart.Number(f)
}

// clock is a time of today, moment one of any day, both in the process's zone.
func clock(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.Local().Format("15:04:05.000")
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// messageName is where a message stands: orders 3/17 on Kafka, orders.created 17 on JetStream.
func messageName(topic string, partition int32, offset int64, id string) string {
	name := plain(topic, 120)
	switch {
	case offset >= 0:
		name += " " + deadletters.FormatPlace(broker.Place{Partition: partition, Offset: offset})
	case id != "":
		name += " " + plain(id, 60)
	}
	return name
}

// keyText is a key of so many bytes, of which begins is the beginning.
func keyText(begins string, bytes int) string {
	switch {
	case bytes < 0:
		return "–"
	case bytes == 0:
		return "empty"
	case isText([]byte(cut(begins, shownKey))): // begins may end within a character
		return plain(begins, shownKey)
	}
	return textOr([]byte(begins), shownKey)
}

// shownKey bytes of a key are shown.
const shownKey = 60

// share writes 0..1 in percent; negative is unknown.
func share(f float64) string {
	if f < 0 {
		return "–"
	}
	return chart.Number(math.Round(f*100)) + " %"
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return plain(err.Error(), fieldBytes)
}

// A shell is what stands around each page.
type shell struct {
	Title     string
	Consumers []string
	Here      string // the consumer that is shown
	Member    bool   // has logged in
	Token     bool   // there is one to log in with
	Files     string // where the static files are
	Zone      string
	Now       time.Time
}

// A frame is what all pages are shown in.
type frame struct {
	consumers []string // all, by name
	sessions  *sessions
	log       zerolog.Logger
	version   string // of the static files
}

func (f *frame) shell(r *http.Request, title string) shell {
	now := time.Now()
	zone, _ := now.Local().Zone()
	v := shell{
		Title: title, Consumers: f.consumers, Here: r.PathValue("name"), Member: f.sessions.has(r, now),
		Token: f.sessions.token != "", Files: "/ui/static/" + f.version, Zone: zone, Now: now,
	}
	return v
}

// show answers with a page, or a part of one.
func (f *frame) show(w http.ResponseWriter, r *http.Request, code int, name string, view any) {
	var b bytes.Buffer // a mistake in a template is told before anything is sent
	if err := templates.ExecuteTemplate(&b, name, view); err != nil {
		f.log.Error().Str("event", "admin_panic").Str("route", r.Pattern).Err(err).Send()
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = b.WriteTo(w)
}

type failView struct {
	shell
	Wrong string
	Back  string
}

// fail answers with what was wrong, and the way back.
func (f *frame) fail(w http.ResponseWriter, r *http.Request, code int, err error) {
	back := "/ui/"
	if name := r.PathValue("name"); name != "" {
		back = "/ui/c/" + url.PathEscape(name)
	}
	f.show(w, r, code, "fail", failView{shell: f.shell(r, http.StatusText(code)), Wrong: plain(err.Error(), errorBytes), Back: back})
}

// staticVersion is a digest of all static files.
func staticVersion() string {
	h := sha256.New()
	err := fs.WalkDir(static, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := static.ReadFile(path)
		h.Write(b)
		return err
	})
	if err != nil {
		panic(err) // they are in the binary
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}
