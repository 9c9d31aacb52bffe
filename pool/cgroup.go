package pool

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cgroup is what limits the process from outside (cgroup v2). Zero: nothing does.
type cgroup struct {
	quota float64 // processors
	limit float64 // bytes
	dir   string  // whose limit that is
}

// readCgroup reads the limits of the process's group and of those that it is in: the nearest counts. self is a file as
// /proc/self/cgroup. What cannot be read limits nothing.
func readCgroup(self, root string) (c cgroup) {
	text, err := os.ReadFile(self) // #nosec G304 -- the kernel's file system
	if err != nil {
		return c
	}
	for _, line := range strings.Split(string(text), "\n") {
		name, ok := strings.CutPrefix(line, "0::") // the only line of version 2
		if !ok {
			continue
		}
		for dir := filepath.Join(root, filepath.Clean("/"+name)); ; dir = filepath.Dir(dir) {
			c.lower(dir)
			if dir == filepath.Clean(root) || len(dir) <= len(root) {
				return c
			}
		}
	}
	return c
}

// lower takes dir's limits where they are lower.
func (c *cgroup) lower(dir string) {
	if f := fields(dir, "cpu.max"); len(f) == 2 { // "max 100000": no quota
		quota, period := number(f[0]), number(f[1])
		if quota > 0 && period > 0 && (c.quota == 0 || quota/period < c.quota) {
			c.quota = quota / period
		}
	}
	if f := fields(dir, "memory.max"); len(f) == 1 {
		if limit := number(f[0]); limit > 0 && (c.limit == 0 || limit < c.limit) {
			c.limit, c.dir = limit, dir
		}
	}
}

// memory is the share in use of the limit, without files that the kernel keeps only while nobody needs the room.
func (c *cgroup) memory() float64 {
	if c.limit == 0 {
		return 0
	}
	f := fields(c.dir, "memory.current")
	if len(f) != 1 {
		return 0
	}
	used := number(f[0])
	stat := fields(c.dir, "memory.stat")
	for i := 0; i+1 < len(stat); i += 2 {
		if stat[i] == "inactive_file" {
			used -= number(stat[i+1])
		}
	}
	return max(0, used) / c.limit
}

// fields are the words of a file, none where it cannot be read.
func fields(dir, name string) []string {
	text, err := os.ReadFile(filepath.Join(dir, name)) // #nosec G304 -- the kernel's file system
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// number is 0 for what is none, as max.
func number(text string) float64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return float64(n)
}
