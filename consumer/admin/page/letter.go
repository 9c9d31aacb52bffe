package page

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/deadletters"
)

const (
	// shownPayload and shownHex of a payload are shown.
	shownPayload = 64 << 10
	shownHex     = 4 << 10
	// maxEdit is the largest payload that can be edited here.
	maxEdit = 512 << 10
)

// A letterView is one dead letter.
type letterView struct {
	shell
	Name, Topic, Place string
	Letter             *deadletters.Letter
	From, State        string
	Bytes              int
	Payloads           bool
	Hidden             bool // by the configuration
	Key                string
	Headers            []headerRow
	Payload            string
	PayloadIs          string
	Edit               bool
	Text               string // to be edited
	Wrong              string
	Set, Remove        string // of a form that was wrong
	To                 string
	NotJSON            bool // the form may be sent again with a payload that is no JSON any more
}

type headerRow struct{ Key, Value string }

func (d *desk) letter(w http.ResponseWriter, r *http.Request, c *watched) {
	v, err := d.letterView(r, c)
	if err != nil {
		d.fail(w, r, codeOf(err), err)
		return
	}
	d.show(w, r, http.StatusOK, "letter", v)
}

// letterView reads the letter that the address names.
func (d *desk) letterView(r *http.Request, c *watched) (v letterView, err error) {
	if err := r.ParseForm(); err != nil {
		return v, badRequest{err}
	}
	place, err := deadletters.ParsePlace(r.PathValue("place"))
	if err != nil {
		return v, badRequest{err}
	}
	box, err := c.boxOf(readChoice(r.Form, time.Now()))
	if err != nil {
		return v, err
	}
	ctx, end, err := d.scan(r.Context(), d.sessions.has(r, time.Now()))
	if err != nil {
		return v, err
	}
	defer end()
	l, err := deadletters.New(box.Config)
	if err != nil {
		return v, err
	}
	x, err := l.Get(ctx, place)
	if err != nil {
		return v, err
	}
	name := deadletters.FormatPlace(place)
	if !(deadletters.Filter{Handler: box.Handler}).Match(x) { // another's
		return v, fmt.Errorf("%w of %s: %s in %s", deadletters.ErrNoLetter, c.name, name, box.Topic)
	}
	v = letterView{
		shell: d.shell(r, "letter "+name+" of "+c.name), Name: c.name, Topic: box.Topic, Place: name, Letter: x, State: stateOf(x),
		Bytes: len(x.Message.Value),
		From:  messageName(x.OriginalTopic, x.OriginalPartition, x.OriginalOffset, x.OriginalID), Hidden: d.hidePayloads,
	}
	if !d.showsErrors(v.Member) {
		x.Error, x.History = "", nil
	}
	if v.Payloads = v.Member && !v.Hidden; v.Payloads {
		v.open(x.Message)
		v.Edit = v.Edit && box.Publisher != nil
	}
	return v, nil
}

// open fills in what only those see who have logged in.
func (v *letterView) open(m *broker.Message) {
	if m.Key != nil {
		v.Key = textOr(m.Key, errorBytes)
	}
	for k, value := range m.Headers.All() {
		v.Headers = append(v.Headers, headerRow{plain(k, fieldBytes), textOr(value, errorBytes)})
	}
	slices.SortStableFunc(v.Headers, func(a, b headerRow) int { return strings.Compare(a.Key, b.Key) })
	v.Payload, v.PayloadIs = payloadText(m.Value)
	if v.Edit = editable(m.Value); v.Edit {
		v.Text = string(m.Value)
	}
}

// payloadText is a payload as it is shown, and what it is.
func payloadText(b []byte) (text, is string) {
	switch {
	case len(b) == 0:
		return "", "empty"
	case !isText(b):
		text, is = hex.Dump(b[:min(len(b), shownHex)]), "binary"
	case len(b) <= shownPayload && json.Valid(b):
		var pretty bytes.Buffer
		_ = json.Indent(&pretty, b, "", "  ") // is valid
		return plainLines(pretty.String(), pretty.Len()), "JSON, indented"
	default:
		text, is = plainLines(string(b), shownPayload), "text"
	}
	if len(b) > shownPayload || is == "binary" && len(b) > shownHex {
		is += ", its beginning"
	}
	return text, is
}

// editable says whether a payload can be edited in a browser's form: it comes back as it was sent there, though a form has its
// own line ends, and whoever edits it sees all of it.
func editable(b []byte) bool {
	unseen := func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' || unicode.Is(unicode.Bidi_Control, r)
	}
	if len(b) > maxEdit || !isText(b) || bytes.ContainsFunc(b, unseen) {
		return false
	}
	returns := bytes.Count(b, []byte("\r"))
	lines := bytes.Count(b, []byte("\r\n"))
	return returns == 0 || returns == lines && lines == bytes.Count(b, []byte("\n"))
}

// fromForm undoes what a browser does to line ends.
func fromForm(text string, was []byte) []byte {
	if bytes.Contains(was, []byte("\r\n")) {
		return []byte(text)
	}
	return []byte(strings.ReplaceAll(text, "\r\n", "\n"))
}

// editLetter publishes the edited copy of a letter. The letter itself stays, and counts as replayed.
func (d *desk) editLetter(w http.ResponseWriter, r *http.Request, c *watched) {
	v, err := d.letterView(r, c)
	if err != nil {
		d.fail(w, r, codeOf(err), err)
		return
	}
	if !v.Edit {
		d.fail(w, r, http.StatusForbidden, errors.New("this letter cannot be edited here"))
		return
	}
	e := editOf(r, v.Letter.Message.Value)
	err = e.read(v.Letter)
	if err == nil {
		err = d.startEdit(r, c, v, e)
	}
	if err != nil {
		v.Wrong, v.Text, v.Set, v.Remove, v.To, v.NotJSON = plainLines(err.Error(),
			errorBytes), string(e.Value), e.set, e.remove, e.to, errors.Is(err, deadletters.ErrNotJSON)
		d.show(w, r, http.StatusBadRequest, "letter", v)
		return
	}
	http.Redirect(w, r, lettersOf(c, v.Topic), http.StatusSeeOther)
}

// An edit is what a form makes of a letter.
type edit struct {
	deadletters.Edit
	set, remove string // a header a line
	to          string
	again       bool
}

func editOf(r *http.Request, was []byte) *edit {
	return &edit{
		Edit: deadletters.Edit{Value: fromForm(r.PostForm.Get("value"), was), NotJSON: r.PostForm.Get("not_json") == "yes"},
		set:  r.PostForm.Get("set"), remove: r.PostForm.Get("remove"),
		to:    strings.TrimSpace(r.PostForm.Get("to")),
		again: r.PostForm.Get("again") == "yes",
	}
}

// read reads the headers and says what is wrong for a letter, all at once.
func (e *edit) read(l *deadletters.Letter) error {
	var errs []error
	for line := range strings.Lines(e.set) {
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || name == "" {
			errs = append(errs, fmt.Errorf("header %q, want name=value", cut(line, 80)))
			continue
		}
		e.Headers = append(e.Headers, broker.Header{Key: name, Value: []byte(value)})
	}
	for line := range strings.Lines(e.remove) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			e.Without = append(e.Without, line)
		}
	}
	return errors.Join(append(errs, e.Check(l))...)
}
