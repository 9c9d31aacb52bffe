package program

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// checkFile is what config check says of a text, without the file's folder.
func checkFile(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", text)
	root := newRoot(Parts{}.withDefaults())
	root.SetOut(t.Output())
	root.SetErr(t.Output())
	root.SetArgs([]string{"config", "check", filepath.Join(dir, "c.yaml")})
	return strings.ReplaceAll(fmt.Sprint(root.ExecuteContext(t.Context())), dir+string(filepath.Separator), "")
}

// TestTypesOfRoutes: a wrong pattern, and a route that another takes everything from, are found with line and path.
func TestTypesOfRoutes(t *testing.T) {
	const source = "consumers:\n  o:\n    source: {nats: {stream: S, subjects: [a], durable: d}}\n    routes:\n"
	for _, c := range []struct{ routes, want string }{
		{"      - {type: shop.order.created, handler: log}\n      - {type: shop.>, handler: log}\n", "<nil>"},
		{"      - {type: shop..x, handler: log}\n", "c.yaml:5: consumers.o.routes[0].type: \"shop..x\" has an empty token"},
		{"      - {type: shop.*, handler: log}\n      - {type: shop.order, handler: log}\n",
			"c.yaml:6: consumers.o.routes[1]: is never reached: routes[0] comes first and takes all that it matches"},
		{"      - {type: 7, handler: log}\n", "c.yaml:5: consumers.o.routes[0].type: wants a string, is a number"},
	} {
		if got := checkFile(t, source+c.routes); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.routes, got, c.want)
		}
	}
}
