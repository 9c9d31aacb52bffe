package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/internal/namedfile"
)

// maxBytes is the largest file that is read.
const maxBytes = 4 << 20

// A Document is a file that was read: what it says, where it says it, and what is wrong with it.
type Document struct {
	*report
	// File is what it says, as far as it could be understood.
	File File
	// Exports: spans or metrics are sent somewhere, and the last ones take time at a stop.
	Exports bool
	// Digest is a short hash of its text: another one is another file.
	Digest string

	adapters []string // from outside
	secrets  *secrets
}

func newDocument(name string, mode os.FileMode, adapters []string) *Document {
	r := &report{Name: name, lines: map[string]int{}, covered: map[string]bool{}, unread: map[string]bool{},
		inQuotes: map[string]bool{}, here: map[string]bool{}}
	s := &secrets{report: r, mode: mode, filled: map[string]bool{}, decoded: map[string]bool{}}
	return &Document{report: r, adapters: adapters, secrets: s}
}

// Load reads the file of that name and checks it. lookup is os.LookupEnv. Where the error is of reading the file there is no
// Document; what is wrong with its content is in Document.Err, so that more can be found and all be told at once. adapters are
// the names that a source may have beside nats and kafka.
func Load(name string, lookup func(string) (string, bool), adapters ...string) (*Document, error) {
	content, err := namedfile.Once(name, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	mode := os.FileMode(0) // not known
	if info, err := os.Stat(name); err == nil {
		mode = info.Mode().Perm()
	}
	d := newDocument(name, mode, adapters)
	d.parse(content, lookup)
	return d, nil
}

// LoadFrom is Load for what comes from r, which is called name in messages.
func LoadFrom(name string, r io.Reader, lookup func(string) (string, bool), adapters ...string) (*Document, error) {
	content, err := namedfile.All(r, name, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return Parse(name, content, lookup, adapters...), nil
}

// Parse is Load for content that was read already; name is for messages only.
func Parse(name string, content []byte, lookup func(string) (string, bool), adapters ...string) *Document {
	d := newDocument(name, 0, adapters)
	d.parse(content, lookup)
	return d
}

func (d *Document) parse(content []byte, lookup func(string) (string, bool)) {
	sum := sha256.Sum256(content)
	d.Digest = hex.EncodeToString(sum[:6])
	t := &tree{doc: d.report, filled: d.secrets.filled, lookup: lookup}
	values := t.parse(content)
	if values == nil {
		return
	}
	others := d.takeOthers(values)
	d.FindOptions("", d.Options("", values).Decode(&d.File))
	d.putOthers(others)
	d.splitAddresses()
	d.enableTLS()
	for path, secret := range d.File.secrets() {
		d.secrets.read(path, secret)
	}
	d.check()
	for _, c := range d.File.Consumers {
		if c != nil && len(c.Sources) > 0 {
			c.runOn()
			c.Source = c.Sources[0].source() // what is published goes to its broker
		}
	}
}

// Options are options of the file at a path. A secret among them is warned of where it stands in the file itself and others can
// read that.
func (d *Document) Options(path string, values map[string]any) handlers.Options {
	return handlers.NewOptions(values).OnSecret(func(below string) {
		if path != "" {
			below = path + "." + below
		}
		d.secrets.decoded[below] = true
		d.secrets.warnOpen(below)
	})
}

// FindOptions adds what a strict decoder found at and below a path, and nothing for nil. Any other error becomes one finding.
func (r *report) FindOptions(path string, err error) {
	if err == nil {
		return
	}
	var list handlers.OptionErrors
	if !errors.As(err, &list) {
		r.Find(path, "%v", err)
		return
	}
	for _, e := range list {
		at := path
		switch {
		case path == "":
			at = e.Path
		case e.Path != "":
			at = path + "." + e.Path
		}
		r.Find(at, "%s", e.Problem+r.unquote(at, e.Problem))
	}
}

// unquote says, where a string was filled in and something else is wanted, that it is one for its quotes.
func (r *report) unquote(path, problem string) string {
	if !r.inQuotes[path] || !strings.HasSuffix(problem, ", is a string") {
		return ""
	}
	return ": in quotes ${…} is one. Write it without, on a line of its own"
}
