package handlers_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/handlers"
)

// docs/handlers.md lists just the options that there are.
func TestDocsListTheOptions(t *testing.T) {
	b, err := os.ReadFile("../docs/handlers.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]any{"log": handlers.LogConfig{}, "webhook": handlers.WebhookConfig{},
		"exec": handlers.ExecConfig{}, "publish": handlers.PublishConfig{}} {
		_, section, ok := strings.Cut(string(b), "\n## "+name+"\n")
		if !ok {
			t.Errorf("no section %q", name)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		_, table, _ := strings.Cut(section, "| option | default | |")
		documented := map[string]bool{}
		for line := range strings.Lines(table) {
			if option, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "`"); ok && strings.HasPrefix(line, "| `") {
				documented[option] = true
			}
		}
		typ := reflect.TypeOf(c)
		for i := range typ.NumField() {
			if tag := typ.Field(i).Tag.Get("yaml"); tag != "-" && !documented[tag] {
				t.Errorf("%s: option %q is not in the table", name, tag)
			} else {
				delete(documented, tag)
			}
		}
		for option := range documented {
			t.Errorf("%s: the table has %q, which is no option", name, option)
		}
	}
}
