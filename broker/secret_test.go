package broker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
)

func TestSecretIsShownOnlyByReveal(t *testing.T) {
	s := broker.NewSecret("canary")
	type inside struct{ hidden broker.Secret }
	for _, v := range []any{s, &s, inside{s}, []broker.Secret{s}, map[string]broker.Secret{"k": s}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t"} {
			out := fmt.Sprintf(verb, v)
			if strings.Contains(out, "canary") || strings.Contains(strings.ToLower(out), fmt.Sprintf("%x", "canary")) {
				t.Errorf("%s of %T shows it: %s", verb, v, out)
			}
		}
		if js, err := json.Marshal(v); err != nil || strings.Contains(string(js), "canary") {
			t.Errorf("JSON of %T: %s, %v", v, js, err)
		}
	}
	if s.Reveal() != "canary" || s.String() != "***" || s.IsZero() {
		t.Errorf("Reveal %q, String %q, IsZero %v", s.Reveal(), s.String(), s.IsZero())
	}
	var none broker.Secret
	if none.Reveal() != "" || none.String() != "" || !none.IsZero() || broker.NewSecret("") != none {
		t.Error("an empty secret is shown as one")
	}
}
