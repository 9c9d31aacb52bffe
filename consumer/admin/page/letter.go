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
	ctx, end, err := d.scan(r.Context())
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
	v = letterView{
		shell: d.shell(r, "letter "+name+" of "+c.name), Name: c.name, Topic: box.Topic, Place: name, Letter: x, State: stateOf(x),
		Bytes: len(x.Message.Value),
		From:  messageName(x.OriginalTopic, x.OriginalPartition, x.OriginalOffset, x.OriginalID), Hidden: d.hidePayloads,
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
	err = e.check(v.Letter.Message.Value)
	if err == nil {
		err = d.startEdit(r, c, v, e)
	}
	if err != nil {
		v.Wrong, v.Text, v.Set, v.Remove, v.To, v.NotJSON = plainLines(err.Error(),
			errorBytes), string(e.value), e.set, e.remove, e.to, errors.Is(err, errNotJSON)
		d.show(w, r, http.StatusBadRequest, "letter", v)
		return
	}
	http.Redirect(w, r, lettersOf(c, v.Topic), http.StatusSeeOther)
}

// An edit is what a form makes of a letter.
type edit struct {
	value       []byte
	set, remove string // a header a line
	to          string
	again       bool
	notJSON     bool
	headers     []broker.Header
	without     []string
}

func editOf(r *http.Request, was []byte) *edit {
	return &edit{
		value: fromForm(r.PostForm.Get("value"), was), set: r.PostForm.Get("set"), remove: r.PostForm.Get("remove"),
		to:    strings.TrimSpace(r.PostForm.Get("to")),
		again: r.PostForm.Get("again") == "yes", notJSON: r.PostForm.Get("not_json") == "yes",
	}
}

var errNotJSON = errors.New("the payload was JSON and is none any more")

// check reads the headers and says what is wrong, all at once.
func (e *edit) check(was []byte) error {
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
		errs = append(errs, ownHeader(name))
		e.headers = append(e.headers, broker.Header{Key: name, Value: []byte(value)})
	}
	for line := range strings.Lines(e.remove) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			errs = append(errs, ownHeader(line))
			e.without = append(e.without, line)
		}
	}
	if bytes.Equal(e.value, was) && len(e.headers)+len(e.without) == 0 {
		errs = append(errs, errors.New("nothing was changed"))
	}
	if json.Valid(was) && !json.Valid(e.value) && !e.notJSON {
		errs = append(errs, errNotJSON)
	}
	return errors.Join(errs...)
}

// ownHeader refuses headers that are not the message's own.
func ownHeader(name string) error {
	for _, prefix := range []string{broker.ReservedPrefix, "Nats-"} {
		if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
			return fmt.Errorf("header %q: those that begin with %s are not the message's own", cut(name, 80), prefix)
		}
	}
	return nil
}

// apply makes a message what was edited.
func (e *edit) apply(out *broker.Outgoing) error {
	out.Value = e.value
	out.Headers = slices.DeleteFunc(out.Headers, func(h broker.Header) bool {
		return slices.Contains(e.without, h.Key) || slices.ContainsFunc(e.headers,
			func(set broker.Header) bool { return set.Key == h.Key })
	})
	out.Headers = append(out.Headers, e.headers...)
	return nil
}
