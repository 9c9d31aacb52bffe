package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/deadletters"
)

const (
	// lettersAPage are shown.
	lettersAPage = 50
	// scanTimeout is how long reading a topic of dead letters may take while a browser waits.
	scanTimeout = 20 * time.Second
)

// A lettersView is a list of dead letters.
type lettersView struct {
	shell
	Name     string
	Topic    string
	Boxes    []boxView
	Choice   choice
	Classes  []string
	States   []string
	Letters  []letterRow
	Total    int
	Older    string // the address of the next page; "": there is none
	Payloads bool   // keys may be shown
	Replays  bool   // they can be replayed
	Shared   bool   // others have letters there, which are not shown
	Job      *jobView
	Wrong    string
}

// A letterRow is one of them.
type letterRow struct {
	Place    string
	At       time.Time
	From     string
	Key      string
	Class    string
	Error    string
	State    string
	Attempts int
	Replays  int
	Bytes    int
}

// A desk is where dead letters are looked at, and what becomes of them.
type desk struct {
	*frame
	changes      *changes
	jobs         *jobs
	memberScans  chan struct{} // bounds how many requests of who has logged in read dead letters at once
	scans        chan struct{} // those of others
	hidePayloads bool
}

func (d *desk) letters(w http.ResponseWriter, r *http.Request, c *watched) {
	d.listLetters(w, r, c, http.StatusOK, nil)
}

// listLetters answers with the list that the address chooses, and with what was wrong, if something was.
func (d *desk) listLetters(w http.ResponseWriter, r *http.Request, c *watched, code int, wrong error) {
	if len(c.sources.Letters) == 0 {
		d.fail(w, r, http.StatusNotFound, errors.New("this consumer has no dead letters that this page knows"))
		return
	}
	if err := r.ParseForm(); err != nil {
		d.fail(w, r, http.StatusBadRequest, err)
		return
	}
	v := lettersView{
		shell: d.shell(r, c.name+", dead letters"), Name: c.name, Choice: readChoice(r.Form,
			time.Now()), Classes: consumer.FailureClasses(),
		States: []string{string(deadletters.Waiting), string(deadletters.Replayed),
			string(deadletters.Uncertain)}, Job: d.jobs.view(c.name),
	}
	v.Payloads = v.Member && !d.hidePayloads
	if !v.Payloads {
		v.Choice.Key = "" // nor looked for: it could be guessed
	}
	for _, l := range c.sources.Letters {
		v.Boxes = append(v.Boxes, boxView{l.Topic})
	}
	box, err := c.boxOf(v.Choice)
	if err == nil {
		v.Topic, v.Choice.Box, v.Replays, v.Shared = box.Topic, box.Topic, box.Publisher != nil, box.Handler != ""
		err = d.readLetters(r.Context(), box, &v, r.Form.Get("after"))
	}
	if wrong == nil && err != nil {
		code = codeOf(err)
	}
	if err = errors.Join(wrong, err); err != nil {
		v.Wrong = plainLines(err.Error(), errorBytes)
	}
	d.show(w, r, code, "letters", v)
}

// query is a choice as the address of a list has it.
func (c choice) query() url.Values {
	q := url.Values{}
	for field, value := range map[string]string{"box": c.Box, "class": c.Class, "since": c.Since, "key": c.Key, "origin": c.Origin,
		"state": c.State} {
		if value != "" {
			q.Set(field, value)
		}
	}
	return q
}

// readLetters fills the list in.
func (d *desk) readLetters(ctx context.Context, box Letters, v *lettersView, after string) error {
	f, err := v.Choice.listed(box)
	if err != nil {
		return badRequest{err}
	}
	cursor, err := readCursor(after)
	if err != nil {
		return badRequest{err}
	}
	ctx, end, err := d.scan(ctx, v.Member)
	if err != nil {
		return err
	}
	defer end()
	l, err := deadletters.New(box.Config)
	if err != nil {
		return err
	}
	list := newest{most: lettersAPage + 1, before: cursor}
	err = l.List(ctx, f, func(x *deadletters.Letter) error {
		v.Total++
		list.add(x)
		return nil
	})
	if errors.Is(err, broker.ErrNoTopic) {
		return nil // nothing was given up yet
	}
	for i, x := range list.letters {
		if i == lettersAPage {
			q := v.Choice.query()
			q.Set("after", cursorOf(list.letters[i-1].Letter).String())
			v.Older = "/ui/c/" + url.PathEscape(v.Name) + "/letters?" + q.Encode()
			break
		}
		row := rowOf(x, v.Payloads)
		if !d.showsErrors(v.Member) {
			row.Error = ""
		}
		v.Letters = append(v.Letters, row)
	}
	return err
}

// showsErrors says whether the errors' text is shown: a handler, or its command, may have written of the payload into it.
func (d *desk) showsErrors(member bool) bool { return member || !d.hidePayloads }

// scan waits until dead letters may be read, which only so many requests do at once.
func (d *desk) scan(ctx context.Context, member bool) (context.Context, func(), error) {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	scans := d.scans
	if member {
		scans = d.memberScans
	}
	select {
	case scans <- struct{}{}:
		return ctx, d.ended(scans, member, cancel, time.Now()), nil
	case <-ctx.Done():
		cancel()
		return nil, nil, errBusy
	}
}

// restAfter times as long as the scans of a stranger's request took, its place stays taken: those who ask without end have the
// broker read for a fifth of the time in each place. But not for longer than mostRest: of a store that is slow by itself one
// reader, who asks for page after page, would use up all places.
const (
	restAfter = 4
	mostRest  = 15 * time.Second
)

// ended is what is called when a scan that began then is over.
func (d *desk) ended(scans chan struct{}, member bool, cancel context.CancelFunc, began time.Time) func() {
	return func() {
		cancel()
		if took := time.Since(began); !member && took > 0 {
			time.AfterFunc(min(restAfter*took, mostRest), func() { <-scans })
			return
		}
		<-scans
	}
}

var errBusy = errors.New("too many others read dead letters at this moment; try again")

func rowOf(x sized, payloads bool) letterRow {
	row := letterRow{
		Place: deadletters.FormatPlace(x.Place), At: x.At(), From: messageName(x.OriginalTopic, x.OriginalPartition, x.OriginalOffset,
			x.OriginalID),
		Class: x.Class, Error: x.Error, State: stateOf(x.Letter), Attempts: x.Attempts, Replays: x.Replays, Bytes: x.bytes,
	}
	if payloads && x.Message.Key != nil {
		row.Key = textOr(x.Message.Key, 60)
	}
	return row
}

// stateOf is what became of a letter.
func stateOf(l *deadletters.Letter) string {
	s := string(l.State)
	if l.Edited {
		s += ", edited"
	}
	if l.PerhapsTwice {
		s += ", perhaps twice"
	}
	return s
}

// A cursor is a letter's place in the order of a list: the newest first.
type cursor struct {
	nanos     int64
	partition int32
	offset    int64
}

func cursorOf(l *deadletters.Letter) cursor {
	return cursor{l.At().UnixNano(), l.Partition, l.Offset}
}

// newer says whether a comes before b in a list.
func (a cursor) newer(b cursor) bool {
	switch {
	case a.nanos != b.nanos:
		return a.nanos > b.nanos
	case a.partition != b.partition:
		return a.partition > b.partition
	}
	return a.offset > b.offset
}

func (a cursor) String() string { return fmt.Sprintf("%d:%d:%d", a.nanos, a.partition, a.offset) }

// readCursor reads what String wrote; nil: from the newest on.
func readCursor(text string) (*cursor, error) {
	if text == "" {
		return nil, nil
	}
	parts := strings.Split(text, ":")
	if len(parts) == 3 {
		nanos, e1 := strconv.ParseInt(parts[0], 10, 64)
		partition, e2 := strconv.ParseInt(parts[1], 10, 32)
		offset, e3 := strconv.ParseInt(parts[2], 10, 64)
		if e1 == nil && e2 == nil && e3 == nil {
			return &cursor{nanos, int32(partition), offset}, nil
		}
	}
	return nil, fmt.Errorf("after is %q, which no list has said", cut(text, 60))
}

// newest keeps the newest letters before a place, without their payloads.
type newest struct {
	most    int
	before  *cursor
	letters []sized
}

// sized is a letter whose payload was dropped.
type sized struct {
	*deadletters.Letter
	bytes int
}

func (n *newest) add(x *deadletters.Letter) {
	at := cursorOf(x)
	if n.before != nil && !n.before.newer(at) {
		return
	}
	i, _ := slices.BinarySearchFunc(n.letters, at, func(l sized, at cursor) int {
		if cursorOf(l.Letter).newer(at) {
			return -1
		}
		return 1
	})
	if i >= n.most {
		return
	}
	one := sized{x, len(x.Message.Value)}
	x.Message.Value = nil
	n.letters = slices.Insert(n.letters, i, one)
	n.letters = n.letters[:min(len(n.letters), n.most)]
}

// A badRequest is the browser's, or its user's, mistake.
type badRequest struct{ error }

func (b badRequest) Unwrap() error { return b.error }

// codeOf is the answer to a request that failed.
func codeOf(err error) int {
	var bad badRequest
	switch {
	case errors.As(err, &bad):
		return http.StatusBadRequest
	case errors.Is(err, deadletters.ErrNoLetter), errors.Is(err, broker.ErrNoTopic):
		return http.StatusNotFound
	case errors.Is(err, errBusy):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway
}
