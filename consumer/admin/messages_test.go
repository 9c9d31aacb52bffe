package admin_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
)

// TestMessages: whoever asks learns which messages are in hand and why; their keys, whatever their bytes are, those who have the
// token, and nobody where they are to be hidden.
func TestMessages(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h := &fakeTarget{
		running: []consumer.Call{
			{Topic: "orders", Partition: 2, Offset: 9099, Key: "customer-<7>", KeyBytes: 12, Attempt: 3, Messages: 1, Since: at,
				Stuck: true},
			{Topic: "orders", Partition: -1, Offset: -1, ID: "x", Key: "\x00\xff", KeyBytes: 2, Messages: 1, Since: at},
			{Topic: "orders", Key: strings.Repeat("k", 255) + "\xc3", KeyBytes: 300, Messages: 1, Since: at},
		},
		parked: []consumer.ParkedMessage{{Topic: "orders", Offset: 17, KeyBytes: -1, Attempt: 2, Due: at, Class: "error",
			Err: errors.New("no tea")}},
	}
	for name, c := range map[string]struct{ token, hidden, keys bool }{
		"a stranger": {}, "the token": {token: true, keys: true}, "hidden": {token: true, hidden: true},
		"hidden from a stranger": {hidden: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, url := serve(t, admin.Config{Token: token, HideKeys: c.hidden, Targets: map[string]admin.Target{"orders": h}})
			r := request(t, "GET", url+"/consumers/orders/messages", "")
			if c.token {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			a := ask(t, r)
			var got struct {
				Keys       bool             `json:"keys"`
				InHandlers []map[string]any `json:"in_handlers"`
				Parked     []map[string]any `json:"parked"`
			}
			if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 200 || got.Keys != c.keys ||
				len(got.InHandlers) != 3 || len(got.Parked) != 1 {
				t.Fatalf("%d %v: %s", a.status, err, a.body)
			}
			want := map[string]any{"topic": "orders", "partition": 2.0, "offset": 9099.0, "key_bytes": nil, "attempt": 3.0,
				"messages": 1.0, "since": "2026-01-02T03:04:05Z", "stuck": true}
			if c.keys {
				want["key"], want["key_bytes"] = "customer-<7>", 12.0
			}
			if !reflect.DeepEqual(got.InHandlers[0], want) {
				t.Errorf("in a handler: %v, want %v", got.InHandlers[0], want)
			}
			if b := got.InHandlers[1]; b["partition"] != nil || b["offset"] != nil || c.keys != (b["key_base64"] == "AP8=") {
				t.Errorf("a binary key: %v", b)
			}
			if long := got.InHandlers[2]; c.keys && (long["key"] != strings.Repeat("k", 255) || long["key_bytes"] != 300.0) {
				t.Errorf("a long key: %v", long)
			}
			text := "no tea"
			if c.hidden && !c.token {
				text = "" // a handler may have written of the payload into it
			}
			if p := got.Parked[0]; p["error"] != text || p["class"] != "error" || p["key"] != nil || p["key_bytes"] != nil {
				t.Errorf("parked: %v", p)
			}
			if !c.keys && (strings.Contains(a.body, "customer") || strings.Contains(a.body, "AP8")) {
				t.Errorf("a key is told: %s", a.body)
			}
		})
	}
}

// TestMessagesWrongToken: a wrong token is refused, and not taken for none.
func TestMessagesWrongToken(t *testing.T) {
	_, url := serve(t, admin.Config{Token: token, Targets: map[string]admin.Target{"orders": &fakeTarget{},
		"old": struct{ admin.Target }{&fakeTarget{}}}})
	r := request(t, "GET", url+"/consumers/orders/messages", "")
	r.Header.Set("Authorization", "Bearer wrong")
	if a := ask(t, r); a.status != 401 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := get(t, url+"/consumers/orders/messages"); a.status != 200 ||
		a.body != `{"keys":false,"in_handlers":[],"parked":[]}`+"\n" {
		t.Errorf("nothing in hand: %d %s", a.status, a.body)
	}
	for _, name := range []string{"none", "old"} {
		if a := get(t, url+"/consumers/"+name+"/messages"); a.status != 404 {
			t.Errorf("%s: %d", name, a.status)
		}
	}
}
