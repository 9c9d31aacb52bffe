package program

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestTop: the overview of a program that runs, found by its file; who does not run is told of.
func TestTop(t *testing.T) {
	t.Parallel()
	dir, at := t.TempDir(), freePort(t)
	writeFile(t, dir, "c.yaml", "admin: {listen: '127.0.0.1:"+at+"'}\nembedded: {dir: "+filepath.Join(dir, "data")+", port: "+
		freePort(t)+"}\n"+
		"consumers:\n  orders:\n    source: {nats: {stream: ORDERS, subjects: [orders.>], durable: w}}\n    pool: {max: 7}\n    "+
		"routes: [{handler: log}]\n")
	away := launch(t, dir, "top", "-c", "c.yaml", "--once")
	if code := away.code(t); code != 1 || !strings.Contains(away.stderr.String(), "asking the program on 127.0.0.1:"+at) {
		t.Errorf("nobody there: %d %s", code, away.stderr.String())
	}
	run := launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "ready", func() bool { return strings.HasPrefix(fetch("http://127.0.0.1:"+at+"/readyz"), "200") })
	once := launch(t, dir, "top", "-c", "c.yaml", "--once", "--every", "50ms")
	if code := once.code(t); code != 0 {
		t.Fatalf("%d %s", code, once.stderr.String())
	}
	lines := strings.Split(strings.TrimSpace(once.stdout.String()), "\n")
	if len(lines) != 2 || !regexp.MustCompile(`^orders +running +0 +0 +0 +0 +\d of 7 `).MatchString(lines[1]) {
		t.Errorf("%q", lines)
	}
	for args, want := range map[string]string{"--every 0s": "--every is 0s", "-c c.yaml --address 127.0.0.1:1": "one of them",
		"--address http://shop":        `--address is "http://shop", want host:port`,
		"--address shop:80/x":          `--address is "shop:80/x", want host:port`,
		"--address http://127.0.0.1:1": `--address is "http://127.0.0.1:1", want host:port, as in 127.0.0.1:8080`,
		"--address shop --every 0s":    `--address is "shop", want host:port`, "--address :": `--address is ":", want host:port`,
		"orders": "top takes no arguments"} {
		p := launch(t, dir, append([]string{"top"}, strings.Fields(args)...)...)
		if code := p.code(t); code != 2 || !strings.Contains(p.stderr.String(), want) {
			t.Errorf("%s: %d %s", args, code, p.stderr.String())
		}
	}
}

// TestTopTable: rates are of two looks, what is unknown is a dash, and nothing of others moves the cursor.
func TestTopTable(t *testing.T) {
	var out strings.Builder
	table := &topTable{out: &out}
	now := time.Unix(1000, 0)
	row := topRow{Consumer: "or\x1bders", State: "running", Ready: true, Handled: 100, Skipped: 10, Failed: 1}
	table.keep([]topRow{row}, now)
	row.Handled, row.Skipped, row.Failed, row.Dead = 350, 90, 11, 9
	if err := table.print([]topRow{row}, now.Add(2*time.Second)); err != nil {
		t.Fatal(err)
	}
	if want := `or\x1bders  running  -        125        40         5 `; !strings.Contains(out.String(), want) ||
		strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q does not have %q", out.String(), want)
	}
	out.Reset()
	row.Handled, row.Ready = 0, false // started again
	if err := table.print([]topRow{row}, now.Add(3*time.Second)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "no contact  -        -  ") {
		t.Errorf("%q", out.String())
	}
}
