package program

import (
	"testing"

	"github.com/longshoremq/longshore/program/internal/config"
)

// TestWhereThePageIs: on loopback unless the file says otherwise.
func TestWhereThePageIs(t *testing.T) {
	for _, c := range []struct {
		listen, serve string
		want          bool
	}{
		{"", "", true}, {"127.0.0.1:8080", "auto", true}, {"localhost:0", "", true}, {"[::1]:8080", "", true}, {"127.0.0.1:1", "never",
			false},
		{"0.0.0.0:8080", "", false}, {":8080", "auto", false}, {"10.0.0.1:8080", "always", true}, {"10.0.0.1", "", false},
	} {
		a := config.Admin{Listen: c.listen, UI: config.UI{Serve: c.serve}}
		if got := a.Serves(); got != c.want {
			t.Errorf("listen %q, serve %q: %v", c.listen, c.serve, got)
		}
	}
}
