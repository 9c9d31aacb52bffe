package natsbroker

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// FuzzStored: a publish is confirmed only by JSON that names a stream, whoever else answers to the subject.
func FuzzStored(f *testing.F) {
	f.Add([]byte(`{"stream":"ORDERS","seq":3,"duplicate":true}`), "")
	f.Add([]byte(`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"ORDERS","seq":0}`), "")
	f.Add([]byte(`{"error":{}}`), "")
	f.Add([]byte(`{"stream":""}`), "200")
	f.Add([]byte(``), "503")
	f.Add([]byte(`null`), "")
	f.Fuzz(func(t *testing.T, data []byte, code string) {
		if err := stored(&nats.Msg{Data: data, Header: nats.Header{"Status": {code}}}); err != nil {
			return
		}
		var said map[string]json.RawMessage
		if err := json.Unmarshal(data, &said); err != nil {
			t.Fatalf("%q confirms, and is no object: %v", data, err)
		}
		named := false
		for key, value := range said {
			named = named || strings.EqualFold(key, "stream") && len(value) > len(`""`)
		}
		if !named {
			t.Errorf("%q confirms, and names no stream", data)
		}
	})
}

// FuzzStatus: whatever a status says, what remains of a pull is counted only where the server gave both numbers, and it is none
// below zero.
func FuzzStatus(f *testing.F) {
	f.Add("408", "Request Timeout", "3", "1000")
	f.Add("409", "Message Size Exceeds MaxBytes", "-1", "0")
	f.Add("409", "Consumer Deleted", "9223372036854775807", "9223372036854775808")
	f.Add("", "", "+1", " 1")
	f.Fuzz(func(t *testing.T, code, text, messages, size string) {
		h := nats.Header{"Status": {code}, "Description": {text}, "Nats-Pending-Messages": {messages}, "Nats-Pending-Bytes": {size}}
		st := readStatus(h)
		if st.messages < 0 || st.bytes < 0 || !st.counted && (st.messages != 0 || st.bytes != 0) {
			t.Errorf("%q, %q: %+v", messages, size, st)
		}
		if (st.verdict == pullAlive) != (code == "100") || (st.verdict == pullAbsent) != (code == "503") {
			t.Errorf("%q %q: %+v", code, text, st)
		}
		h.Del("Nats-Pending-Bytes")
		if st := readStatus(h); st.counted {
			t.Errorf("half of the numbers: %+v", st)
		}
	})
}
