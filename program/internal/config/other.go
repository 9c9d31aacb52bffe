package config

import (
	"slices"
	"strconv"
	"strings"
)

// takeOthers takes the sections of adapters from outside out of the values, by the path of their source: the file's own keys are
// decoded strictly, and these are not of them.
func (d *Document) takeOthers(values map[string]any) map[string]*Other {
	others := map[string]*Other{}
	consumers, _ := values["consumers"].(map[string]any)
	for name, v := range consumers {
		c, _ := v.(map[string]any)
		at := "consumers." + name
		d.takeOther(others, at+".source", c["source"])
		list, _ := c["sources"].([]any)
		for i, in := range list {
			d.takeOther(others, at+".sources["+strconv.Itoa(i)+"]", in)
		}
	}
	return others
}

func (d *Document) takeOther(others map[string]*Other, path string, v any) {
	source, _ := v.(map[string]any)
	for _, name := range d.adapters {
		section, ok := source[name]
		if !ok {
			continue
		}
		delete(source, name)
		with, ok := section.(map[string]any)
		if section != nil && !ok {
			d.Find(path+"."+name, "wants a mapping")
			continue
		}
		others[path] = &Other{Adapter: name, With: with}
	}
	d.refuseUnknown(path, source)
}

// refuseUnknown says of what no source has which ones there are: the decoder of the file's own keys knows nothing of adapters
// from outside, and a section may be one of a program's that knows it.
func (d *Document) refuseUnknown(path string, source map[string]any) {
	known := kinds(d.adapters)
	if strings.HasSuffix(path, "]") {
		known = append(known, "weight")
	}
	slices.Sort(known)
	for key, v := range source {
		if slices.Contains(known, key) {
			continue
		}
		delete(source, key)
		hint := ""
		if _, section := v.(map[string]any); section {
			hint = ". A broker of your own is known to the program that adds it"
		}
		d.Find(path+"."+key, "unknown option; known: %s%s", strings.Join(known, ", "), hint)
	}
}

// putOthers puts them where they belong.
func (d *Document) putOthers(others map[string]*Other) {
	for name, c := range d.File.Consumers {
		if c == nil {
			continue
		}
		at := "consumers." + name
		c.Source.Other = others[at+".source"]
		for i := range c.Sources {
			c.Sources[i].Other = others[at+".sources["+strconv.Itoa(i)+"]"]
		}
	}
}

// ownKinds are the names that a source may have beside those of adapters from outside.
var ownKinds = []string{"nats", "nats_core", "kafka"}

// kinds are all of them.
func kinds(adapters []string) []string {
	return slices.Concat(ownKinds, slices.Sorted(slices.Values(adapters)))
}

// kindsText is "nats, kafka and redis".
func kindsText(kinds []string) string {
	last := len(kinds) - 1
	return strings.Join(kinds[:last], ", ") + " and " + kinds[last]
}
