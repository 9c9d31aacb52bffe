package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer/admin/page/internal/chart"
	"github.com/longshoremq/longshore/deadletters"
)

// What a job does.
const (
	jobReplay = "replay"
	jobPurge  = "purge"
	jobEdit   = "edit"
)

const (
	// defaultRate is how many letters a second are replayed, unless the form says otherwise.
	defaultRate = 100
	// maxReasons are told of in a plan.
	maxReasons = 10
)

// An order is a form that asks for a replay or a purge.
type order struct {
	choice
	kind  string
	to    string
	rate  float64
	again bool
	by    string
	// sure says that the plan was seen, number how many letters it named, and sum, of a purge, which (deadletters.PurgePlan.Sum).
	sure   bool
	number int64
	sum    string
}

func orderOf(kind string, r *http.Request, now time.Time) (o order, err error) {
	form := r.PostForm
	o = order{
		by:     byOf(r),
		choice: readChoice(form, now), kind: kind, to: strings.TrimSpace(form.Get("to")), again: form.Get("again") == "yes",
		sure: form.Get("sure") == "yes", sum: form.Get("sum"), rate: defaultRate,
	}
	if text := strings.TrimSpace(form.Get("rate")); text != "" {
		if o.rate, err = strconv.ParseFloat(text, 64); err != nil || !(o.rate >= 0 && o.rate <= 1e7) {
			err = fmt.Errorf("rate is %q, want letters a second, 0 to 10,000,000; 0 is as fast as they are confirmed", cut(text, 40))
		}
	}
	if o.sure {
		var wrong error
		if o.number, wrong = strconv.ParseInt(form.Get("number"), 10, 64); wrong != nil || o.number < 1 {
			err = errors.Join(err, fmt.Errorf("number is %q, want how many letters the plan names", cut(form.Get("number"), 40)))
		}
	}
	return o, err
}

// A planView says what an order would do.
type planView struct {
	shell
	Name, Topic string
	Kind        string
	Number      int64 // letters it would do something to
	Lines       []string
	Fields      []field // of the form that starts it
	Tallies     []tally
	Refused     []tally
}

type field struct{ Name, Value string }

// A tally is how many letters have something in common.
type tally struct {
	What string
	N    int64
}

func (d *desk) replay(w http.ResponseWriter, r *http.Request, c *watched) {
	d.order(w, r, c, jobReplay)
}
func (d *desk) purge(w http.ResponseWriter, r *http.Request, c *watched) { d.order(w, r, c, jobPurge) }

// order shows the plan first; when that was seen, the job begins.
func (d *desk) order(w http.ResponseWriter, r *http.Request, c *watched, kind string) {
	o, err := orderOf(kind, r, time.Now())
	if err == nil {
		_, err = o.meant(Letters{})
	}
	if err == nil && o.Key != "" && d.hidePayloads {
		err = errHiddenKey
	}
	if err != nil {
		d.listLetters(w, r, c, http.StatusBadRequest, err)
		return
	}
	box, err := c.boxOf(o.choice)
	if err != nil {
		d.listLetters(w, r, c, codeOf(err), err)
		return
	}
	if !o.sure {
		d.plan(w, r, c, o, box)
		return
	}
	if err := d.jobs.start(jobSpec{order: o, consumer: c.name, box: box}); err != nil {
		d.listLetters(w, r, c, http.StatusConflict, err)
		return
	}
	d.changes.tell(r, c, o.fields())
	http.Redirect(w, r, lettersOf(c, box.Topic), http.StatusSeeOther)
}

// errHiddenKey: how many letters there are with a key tells whether there is one.
var errHiddenKey = errors.New("keys are hidden here, so that letters cannot be chosen by theirs")

// fields are an order for the log.
func (o order) fields() map[string]any {
	m := map[string]any{"letters": o.number, "scope": o.Scope, "from": o.Box}
	if o.kind == jobReplay {
		m["to"] = cmp.Or(o.to, "where they came from")
	}
	return m
}

// lettersOf is where a consumer's letters of a topic are listed.
func lettersOf(c *watched, topic string) string {
	return "/ui/c/" + url.PathEscape(c.name) + "/letters?" + url.Values{"box": {topic}}.Encode()
}

// plan finds out what an order would do, and shows it.
func (d *desk) plan(w http.ResponseWriter, r *http.Request, c *watched, o order, box Letters) {
	v := planView{shell: d.shell(r, o.kind+", "+c.name), Name: c.name, Topic: box.Topic, Kind: o.kind, Fields: o.form()}
	ctx, cancel := context.WithTimeout(r.Context(), scanTimeout) // with the list below: the server cuts what takes longer
	defer cancel()
	if err := d.fill(ctx, &v, o, box); err != nil {
		switch {
		case errors.Is(err, errBusy):
			d.fail(w, r, codeOf(err), err)
		case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, errTooMany):
			d.fail(w, r, codeOf(errTooMany), errTooMany)
		default:
			d.listLetters(w, r.WithContext(ctx), c, codeOf(err), err)
		}
		return
	}
	v.Fields = append(v.Fields, field{"number", strconv.FormatInt(v.Number, 10)}, field{"sure", "yes"})
	d.show(w, r, http.StatusOK, "plan", v)
}

// fill makes the plan, which only who has logged in asks for. When it returns, others may read letters again: the answer may read
// them anew, or its reader be slow.
func (d *desk) fill(ctx context.Context, v *planView, o order, box Letters) error {
	ctx, end, err := d.scan(ctx, true)
	if err != nil {
		return err
	}
	defer end()
	if o.kind == jobReplay {
		return v.planReplay(ctx, o, box)
	}
	return v.planPurge(ctx, o, box)
}

// form are the fields that say the same again.
func (o order) form() (list []field) {
	q := o.query()
	for _, name := range slices.Sorted(maps.Keys(q)) {
		list = append(list, field{name, q.Get(name)})
	}
	list = append(list, field{"scope", o.Scope})
	for _, p := range o.Places {
		list = append(list, field{"place", p})
	}
	if o.kind == jobReplay {
		list = append(list, field{"rate", formNumber(o.rate)}, field{"to", o.to})
		if o.again {
			list = append(list, field{"again", "yes"})
		}
	}
	return list
}

// planReplay decides about each letter, and changes nothing.
func (v *planView) planReplay(ctx context.Context, o order, box Letters) error {
	l, err := deadletters.New(box.Config)
	if err != nil {
		return err
	}
	replay, err := replayOf(ctx, o, box)
	if err != nil {
		return err
	}
	to, refused := map[string]int64{}, map[string]int64{}
	replay.DryRun = true
	replay.OnLetter = func(_ *deadletters.Letter, where string, why error) {
		switch {
		case why == nil:
			count(to, plain(where, fieldBytes))
		default:
			count(refused, plain(why.Error(), fieldBytes))
		}
	}
	sum, err := l.Replay(ctx, replay)
	if err != nil {
		return err
	}
	if sum.Stopped {
		return errTooMany
	}
	v.Number, v.Tallies, v.Refused = sum.Replayed, tallies(to), tallies(refused)
	v.Lines = append(v.Lines, fmt.Sprintf("%s would be replayed.", letters(sum.Replayed)))
	if sum.Refused > 0 {
		v.Lines = append(v.Lines, fmt.Sprintf("%s would be refused, and stay.", letters(sum.Refused)))
	}
	if sum.Before > 0 {
		v.Lines = append(v.Lines, fmt.Sprintf("%s of those chosen were replayed before, and are left out.", letters(sum.Before)))
	}
	if o.rate > 0 && sum.Replayed > 0 {
		v.Lines = append(v.Lines, fmt.Sprintf("At %s a second it takes about %s.", chart.Number(o.rate),
			duration(seconds(float64(sum.Replayed)/o.rate))))
	}
	return nil
}

var errTooMany = fmt.Errorf("there are so many letters that they could not be read in %v; longshore dlq takes its time",
	scanTimeout)

// planPurge finds out what can be deleted.
func (v *planView) planPurge(ctx context.Context, o order, box Letters) error {
	f, err := o.meant(box)
	if err != nil {
		return badRequest{err}
	}
	l, err := deadletters.New(box.Config)
	if err != nil {
		return err
	}
	p, err := l.PlanPurge(ctx, f)
	if err != nil {
		return err
	}
	v.Number = int64(len(p.Places))
	v.Fields = append(v.Fields, field{"sum", p.Sum()})
	v.Lines = append(v.Lines, fmt.Sprintf("%s would be deleted for good. It cannot be undone.", letters(v.Number)))
	if p.Waiting > 0 {
		v.Lines = append(v.Lines, fmt.Sprintf("Not replayed, as far as is known: %s of these.", letters(p.Waiting)))
	}
	if p.Behind > 0 {
		v.Lines = append(v.Lines, fmt.Sprintf("%s of those chosen stand behind others that are to stay, the first is %s: Kafka "+
			"deletes a log only from its beginning. They stay.",
			letters(p.Behind), deadletters.FormatPlace(p.First)))
	}
	return nil
}

// replayOf is what package deadletters is asked for.
func replayOf(ctx context.Context, o order, box Letters) (deadletters.Replay, error) {
	f, err := o.meant(box)
	if err != nil {
		return deadletters.Replay{}, badRequest{err}
	}
	r := deadletters.Replay{Filter: f, To: o.to, Rate: o.rate, Again: o.again, Limit: o.number, By: o.by}
	if err := broker.CheckDestination(o.to); o.to != "" && err != nil {
		return r, badRequest{fmt.Errorf("to: %w", err)}
	}
	if o.to == "" {
		if box.Allow == nil {
			return r, badRequest{errors.New("to is empty, and nothing says which topics a letter may name as where it came from: name " +
				"one")}
		}
		if r.Allow, err = box.Allow(ctx); err != nil {
			return r, fmt.Errorf("finding out what may be replayed to where it came from: %w", err)
		}
	}
	return r, nil
}

// byOf is who replays, as far as the page knows: all have one token.
func byOf(r *http.Request) string { return "the page, from " + r.RemoteAddr }

// count adds one to what has that text; what is too much together goes under the last.
func count(m map[string]int64, text string) {
	if _, ok := m[text]; !ok && len(m) >= maxReasons {
		text = "others"
	}
	m[text]++
}

func tallies(m map[string]int64) (list []tally) {
	for what, n := range m {
		list = append(list, tally{what, n})
	}
	slices.SortFunc(list, func(a, b tally) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.What, b.What)) })
	return list
}

// letters counts them.
func letters(n int64) string {
	if n == 1 {
		return "1 letter"
	}
	return chart.Whole(n) + " letters"
}

func seconds(s float64) time.Duration {
	return time.Duration(min(s, math.MaxInt64/float64(2*time.Second)) * float64(time.Second))
}
