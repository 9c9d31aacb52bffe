package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// hookCuts take Config.Around out of the loop that calls handlers: what was there before there was a hook. A cut that does not
// fit the text any more ends the measurement.
var hookCuts = []struct{ from, to string }{
	{"ctx, handler, guarded, around := l.use(w), ws.handler, ws.limited || w.crashed, ws.around != nil",
		"ctx, handler, guarded := l.use(w), ws.handler, ws.limited || w.crashed"},
	{"\t\tcase around:\n\t\t\tws.callAround(ctx, l, w, i)\n\t\t\tcontinue\n", ""},
}

// rebuilt measures a system of the group hooks in a program that is built for it, of the same sources: as they are, or without
// the hook. Both are built, so that what a build leaves behind (a warm processor, full caches) hits both.
func rebuilt(system string, hook bool) func(n int) sample {
	return func(n int) (s sample) {
		dir := must(os.MkdirTemp("", "longshore-bench-"))
		defer os.RemoveAll(dir)
		exe := filepath.Join(dir, "bench")
		build := []string{"build", "-o", exe}
		if !hook {
			build = append(build, "-overlay="+withoutHook(dir))
		}
		output("go", append(build, "github.com/longshoremq/longshore/bench")...)
		check(json.Unmarshal(output(exe, "-one", "hooks/"+system, "-n", fmt.Sprint(n)), &s))
		return s
	}
}

// withoutHook writes what tells the compiler to take another worker.go.
func withoutHook(dir string) (overlay string) {
	module := strings.TrimSpace(string(output("go", "list", "-m", "-f", "{{.Dir}}", "github.com/longshoremq/longshore")))
	file := filepath.Join(module, "consumer", "worker.go")
	text := must(os.ReadFile(file))
	for _, cut := range hookCuts {
		if bytes.Count(text, []byte(cut.from)) != 1 {
			panic(fmt.Sprintf("bench: %s does not have once: %s", file, cut.from))
		}
		text = bytes.Replace(text, []byte(cut.from), []byte(cut.to), 1)
	}
	changed := filepath.Join(dir, "worker.go")
	check(os.WriteFile(changed, text, 0o600))
	overlay = filepath.Join(dir, "overlay.json")
	check(os.WriteFile(overlay, must(json.Marshal(map[string]map[string]string{"Replace": {file: changed}})), 0o600))
	return overlay
}

// output is what a command prints; one that fails ends the measurement.
func output(name string, args ...string) []byte {
	cmd := exec.Command(name, args...)
	var wrong bytes.Buffer
	cmd.Stderr = &wrong
	b, err := cmd.Output()
	if err != nil {
		panic(fmt.Sprintf("%s %s: %v: %s", name, strings.Join(args, " "), err, wrong.String()))
	}
	return b
}
