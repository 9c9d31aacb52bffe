package page

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// said are the words to what was done, by what the address says of it.
var said = map[string]string{
	"limits": "The limits are set. They hold until the next start.",
	"paused": "It takes no more messages. What was taken is handled.", "resumed": "It takes messages again.",
}

// controls change what a consumer does.
type controls struct {
	*frame
	details *details
	changes *changes
}

// done sends the browser back to the consumer's page, as it is now.
func (k *controls) done(w http.ResponseWriter, r *http.Request, c *watched, word string) {
	http.Redirect(w, r, "/ui/c/"+url.PathEscape(c.name)+"?said="+word, http.StatusSeeOther)
}

// wrong shows the consumer's page with what was wrong.
func (k *controls) wrong(w http.ResponseWriter, r *http.Request, c *watched, code int, err error) {
	v := k.details.detailView(r, c)
	v.Limits, v.Wrong = limitViews(c), plainLines(err.Error(), errorBytes)
	k.show(w, r, code, "detail", v)
}

func (k *controls) pause(w http.ResponseWriter, r *http.Request, c *watched) {
	if err := c.target().Pause(); err != nil {
		k.wrong(w, r, c, http.StatusConflict, err)
		return
	}
	k.changes.tell(r, c, nil)
	k.done(w, r, c, "paused")
}

func (k *controls) resume(w http.ResponseWriter, r *http.Request, c *watched) {
	if err := c.target().Resume(); err != nil {
		k.wrong(w, r, c, http.StatusConflict, err)
		return
	}
	k.changes.tell(r, c, nil)
	k.done(w, r, c, "resumed")
}

// setWorkers sets the least and the most workers.
func (k *controls) setWorkers(w http.ResponseWriter, r *http.Request, c *watched) {
	least, e1 := wholeOf(r.PostForm, "min")
	most, e2 := wholeOf(r.PostForm, "max")
	err := errors.Join(e1, e2)
	if err == nil {
		err = c.target().SetLimits(least, most)
	}
	if err != nil {
		k.wrong(w, r, c, http.StatusBadRequest, err)
		return
	}
	k.changes.tell(r, c, map[string]any{"min": least, "max": most})
	k.done(w, r, c, "limits")
}

func wholeOf(form url.Values, field string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(form.Get(field)))
	if err != nil {
		return 0, fmt.Errorf("%s is %q, want a whole number", field, cut(form.Get(field), 40))
	}
	return n, nil
}

// setLimit sets those settings of a limit of handlers that the form has; an empty field leaves its setting as it is.
func (k *controls) setLimit(w http.ResponseWriter, r *http.Request, c *watched) {
	l := c.served.Load().limits[r.PathValue("limit")]
	if l == nil {
		k.wrong(w, r, c, http.StatusNotFound, errors.New("there is no such limit"))
		return
	}
	to := map[string]float64{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(l.Settings())) {
		text := strings.TrimSpace(r.PostForm.Get(name))
		if text == "" {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			errs = append(errs, fmt.Errorf("%s is %q, want a number", name, cut(text, 40)))
		}
		to[name] = v
	}
	if len(to) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("no setting was given"))
	}
	err := errors.Join(errs...)
	if err == nil {
		err = l.Change(to)
	}
	if err != nil {
		k.wrong(w, r, c, http.StatusBadRequest, err)
		return
	}
	k.changes.tell(r, c, map[string]any{"limit": r.PathValue("limit"), "settings": to})
	k.done(w, r, c, "limits")
}

// formNumber writes a number as a form takes it.
func formNumber(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
