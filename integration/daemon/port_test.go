package daemon_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/integration/daemon"
)

// TestFreePortIsGivenOnce: also where another process asks for one, as two packages' tests do that run side by side. The two
// together ask for so many of the 15,000 that they would meet.
func TestFreePortIsGivenOnce(t *testing.T) {
	const other = "LONGSHORE_TEST_PORTS" // what this process is to print them for, as the other one
	ports := func(n int) (all []string) {
		for range n {
			p, err := daemon.FreePort()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprint(p))
		}
		return all
	}
	own := ports(400)
	if os.Getenv(other) != "" {
		fmt.Println("ports", strings.Join(own, " "))
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFreePortIsGivenOnce$")
	cmd.Env = append(os.Environ(), other+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	seen := map[string]bool{}
	line, _, _ := bytes.Cut(out, []byte("\n"))
	theirs := strings.Fields(string(line))
	if len(theirs) != 401 {
		t.Fatalf("the other one says:\n%s", out)
	}
	for _, p := range append(own, theirs[1:]...) {
		if seen[p] {
			t.Errorf("port %s was given twice", p)
		}
		seen[p] = true
	}
}
