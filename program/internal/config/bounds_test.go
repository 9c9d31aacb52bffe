package config_test

import (
	"runtime"
	"strings"
	"testing"
)

// A file of a few megabytes takes no more than a few times that, whatever is in it.
func TestFileTakesBoundedMemory(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	deep := "\nconsumers:\n"
	for i := range 28 {
		deep += strings.Repeat(" ", i+1) + strings.Repeat("k", 1000) + ":\n"
	}
	for name, c := range map[string]struct{ text, want string }{
		"a long key above many elements": {"? " + big + "\n: [" + strings.Repeat("1,", 3000) + "1]\n", "bytes, more than"},
		"long keys in each other": {deep + strings.Repeat(" ", 30) + "[" + strings.Repeat("1,", 20000) + "1]\n",
			"bytes, more than"},
		"many copies of a filled text": {"a: &a \"${X}" + big + "\"\nb: [" + strings.Repeat("*a,", 3000) + "*a]\n",
			"too much is filled in"},
		"a long variable in many places":  {"b: [" + strings.Repeat("\"${BIG}\",", 3000) + "x]\n", "too much is filled in"},
		"a long variable many times over": {"b: \"" + strings.Repeat("${BIG}", 3000) + "\"\n", "too much is filled in"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d := parse(c.text, map[string]string{"X": "x", "BIG": big})
		runtime.ReadMemStats(&after)
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 200 {
			t.Errorf("%s: %d MiB", name, used)
		}
		if err := d.Err(); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1<<20 {
			t.Errorf("%s: %.300s", name, err)
		}
	}
}
