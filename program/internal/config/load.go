package config

import (
	"errors"
	"fmt"
	"os"

	"github.com/longshoremq/longshore/handlers"
)

// maxBytes is the largest file that is read.
const maxBytes = 4 << 20

// Load reads the file of that name and checks it. lookup is os.LookupEnv. Where the error is of reading the file there is no Document; what is
// wrong with its content is in Document.Err, so that more can be found and all be told at once.
func Load(name string, lookup func(string) (string, bool)) (*Document, error) {
	content, err := os.ReadFile(name) // #nosec G304 -- the caller names it
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	if len(content) > maxBytes {
		return nil, fmt.Errorf("reading the configuration: %s has %d bytes, more than %d", name, len(content), maxBytes)
	}
	return Parse(name, content, lookup), nil
}

// Parse is Load for content that was read already; name is for messages only.
func Parse(name string, content []byte, lookup func(string) (string, bool)) *Document {
	d := &Document{Name: name, lines: map[string]int{}}
	t := &tree{doc: d, lookup: lookup}
	values := t.parse(content)
	if values == nil {
		return d
	}
	d.FindOptions("", handlers.NewOptions(values).Decode(&d.File))
	for path, secret := range d.secrets() {
		d.readSecret(path, secret)
	}
	d.check()
	for _, c := range d.File.Consumers {
		if c != nil && len(c.Sources) > 0 { // what is published goes to its broker
			c.Source = c.Sources[0].source()
		}
	}
	return d
}

// FindOptions adds what a strict decoder found at and below a path, and nothing for nil. Any other error becomes one finding.
func (d *Document) FindOptions(path string, err error) {
	if err == nil {
		return
	}
	var list handlers.OptionErrors
	if !errors.As(err, &list) {
		d.Find(path, "%v", err)
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
		d.Find(at, "%s", e.Problem)
	}
}
