package admin

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/longshoremq/longshore/consumer"
)

const (
	// mostMessages of each kind are told.
	mostMessages = 1000
	// mostError bytes of an error are, and mostName of a topic or an id, which producers choose.
	mostError = 512
	mostName  = 512
)

// An open target tells what it has in hand: a *consumer.Consumer.
type open interface {
	Calls(n int) []consumer.Call
	Parked(n int) []consumer.ParkedMessage
}

// messages is the answer to GET /consumers/{name}/messages. Its names are stable. What is unknown is null.
type messages struct {
	// Keys says whether keys are told.
	Keys       bool            `json:"keys"`
	InHandlers []calledMessage `json:"in_handlers"`
	Parked     []parkedMessage `json:"parked"`
}

// place is where a message stands, and what it is ordered by.
type place struct {
	Topic     string `json:"topic"`
	Partition *int64 `json:"partition"`
	Offset    *int64 `json:"offset"`
	ID        string `json:"id,omitempty"`
	// Key is the key's beginning where it is text, KeyBase64 where it is not; KeyBytes is its whole length, null: none, or hidden.
	Key       *string `json:"key,omitempty"`
	KeyBase64 []byte  `json:"key_base64,omitempty"`
	KeyBytes  *int64  `json:"key_bytes"`
	Attempt   int32   `json:"attempt"`
}

type calledMessage struct {
	place
	// Messages is how many the handler was called with.
	Messages int       `json:"messages"`
	Since    time.Time `json:"since"`
	Stuck    bool      `json:"stuck"`
}

type parkedMessage struct {
	place
	Due      time.Time `json:"due"`
	Deferred bool      `json:"deferred"`
	Class    string    `json:"class"`
	Error    string    `json:"error"`
}

// messages tells what a consumer has in hand. Everybody may know which messages these are; their keys, which may be personal
// data, those with the token.
func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	keys := r.Header.Get("Authorization") != ""
	if keys && !s.allowed(w, r) {
		return
	}
	t, ok := s.target(w, r)
	if !ok {
		return
	}
	o, ok := t.(open)
	if !ok {
		http.Error(w, "this consumer does not tell what it has in hand", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	s.made(func(w http.ResponseWriter, _ *http.Request) {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false) // six bytes for each < of an error
		_ = e.Encode(inHand(o, keys && !s.cfg.HideKeys, keys || !s.cfg.HideKeys))
	})(w, r)
}

// inHand has keys, and the text of errors, where they may be shown: an error may have of a payload what a handler wrote into it.
func inHand(o open, keys, errs bool) messages {
	all := messages{Keys: keys, InHandlers: []calledMessage{}, Parked: []parkedMessage{}}
	for _, c := range o.Calls(mostMessages) {
		at := placeOf(c.Topic, c.Partition, c.Offset, c.ID, c.Attempt)
		if keys {
			at.setKey(c.Key, c.KeyBytes)
		}
		all.InHandlers = append(all.InHandlers, calledMessage{at, c.Messages, c.Since.UTC(), c.Stuck})
	}
	for _, p := range o.Parked(mostMessages) {
		at := placeOf(p.Topic, p.Partition, p.Offset, p.ID, p.Attempt)
		if keys {
			at.setKey(p.Key, p.KeyBytes)
		}
		one := parkedMessage{place: at, Due: p.Due.UTC(), Deferred: p.Deferred, Class: p.Class}
		if p.Err != nil && errs {
			one.Error = short(p.Err.Error(), mostError)
		}
		all.Parked = append(all.Parked, one)
	}
	return all
}

func placeOf(topic string, partition int32, offset int64, id string, attempt int32) place {
	return place{Topic: short(topic, mostName), Partition: known(int64(partition)), Offset: known(offset), ID: short(id, mostName),
		Attempt: attempt}
}

// short is a text of others as far as it is told: at most so many bytes, and characters, as JSON has no others.
func short(s string, most int) string {
	if len(s) > most {
		s = whole(s[:most])
	}
	return strings.ToValidUTF8(s, "?")
}

// setKey tells a key of so many bytes, of which begins is the beginning.
func (p *place) setKey(begins string, bytes int) {
	if bytes < 0 {
		return
	}
	p.KeyBytes = known(int64(bytes))
	text := begins
	if bytes > len(begins) { // it may have been cut within a character
		text = whole(begins)
	}
	if utf8.ValidString(text) && !strings.ContainsRune(text, 0) {
		p.Key = &text
		return
	}
	p.KeyBase64 = []byte(begins)
}

// whole leaves out a character at the end of which a part is missing.
func whole(s string) string {
	for i := len(s) - 1; i >= max(0, len(s)-utf8.UTFMax); i-- {
		if utf8.RuneStart(s[i]) {
			if !utf8.FullRuneInString(s[i:]) {
				return s[:i]
			}
			return s
		}
	}
	return s
}
