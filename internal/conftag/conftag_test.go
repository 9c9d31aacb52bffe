package conftag_test

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/conftag"
)

type Base struct {
	Name string        `yaml:"name" want:"some"`
	Wait time.Duration `yaml:"wait_for" want:"20ms..ms32"`
}

type step struct {
	Size int `yaml:"size" want:"1.."`
}

type config struct {
	Base   `yaml:",inline"`
	Inner  Base          `yaml:"inner"`
	At     *Base         `yaml:"at"`
	Steps  []step        `yaml:"steps"`
	Mode   string        `yaml:"mode" want:"wait|stop"`
	Styles []string      `yaml:"styles" want:"a|b"`
	Share  float64       `yaml:"share" want:">0..1"`
	Port   int           `yaml:"port" want:"0..65535"`
	Bound  int           `yaml:"bound" want:"1.. or -1"`
	More   time.Duration `yaml:"more" want:">0"`
	Hidden int           `yaml:"-" want:"..9"`
	hidden int
}

func TestCheck(t *testing.T) {
	for want, c := range map[string]config{
		"": {Base: Base{"x", time.Second}, Inner: Base{Wait: 20 * time.Millisecond}, Steps: []step{{1}, {}}, Mode: "stop",
			Styles: []string{"b", "a"},
			Share:  1, Port: 65535, Bound: -1, More: 1, Hidden: 9, hidden: -1},
		"Wait is 1ms, want at least 20ms":                                         {Base: Base{Wait: time.Millisecond}},
		"Inner.Wait is -1s, negative":                                             {Inner: Base{Wait: -time.Second}},
		"At.Wait is 597h0m0s, more than 596h31m23.647s (32 bits of milliseconds)": {At: &Base{Wait: 597 * time.Hour}},
		"Steps[1].Size is -2, want at least 1":                                    {Steps: []step{{1}, {-2}}},
		`Mode is "later", want one of [wait stop]`:                                {Mode: "later"},
		`Styles[1] is "c", want one of [a b]`:                                     {Styles: []string{"a", "c"}},
		"Share is 1.5, want more than 0, at most 1":                               {Share: 1.5},
		"Share is NaN, want more than 0, at most 1":                               {Share: math.NaN()},
		"Port is -1, negative":                                                    {Port: -1},
		"Port is 65536, want 0 to 65535":                                          {Port: 65536},
		"Bound is -2, want at least 1 or -1":                                      {Bound: -2},
		"More is -1ns, negative":                                                  {More: -1},
		"Hidden is 10, want at most 9":                                            {Hidden: 10},
		"Inner.Wait is -1ns, negative\nAt.Wait is -2ns, negative\nPort is -3, negative": {Inner: Base{Wait: -1}, At: &Base{Wait: -2},
			Port: -3},
	} {
		var fs broker.Findings
		if conftag.Check(&fs, c); fs.Error() != want {
			t.Errorf("found %q, want %q", fs.Error(), want)
		}
	}
}

// TestZero: the file can say 0 where Go has the default then.
func TestZero(t *testing.T) {
	for tag, c := range map[string]struct {
		v    any
		want string
	}{
		"1..":       {0, "is 0, want at least 1"},
		"0..":       {0, ""},
		">0":        {time.Duration(0), "is 0s, want more"},
		"20ms..":    {time.Duration(0), "is 0s, want more"},
		"some":      {"", "is empty"},
		"a|b":       {"", `is "", want one of [a b]`},
		"1.. or -1": {0, "is 0, want at least 1 or -1"},
	} {
		p, wrong := conftag.Look(tag, reflect.ValueOf(c.v))
		if wrong != (c.want != "") || wrong && p.String() != c.want {
			t.Errorf("%s: %v %q, want %q", tag, wrong, p, c.want)
		}
	}
}

func TestName(t *testing.T) {
	for field, want := range map[broker.Field]string{
		"Wait": "wait_for", "Inner.Wait": "inner.wait_for", "At.Name": "at.name", "Steps[3].Size": "steps[3].size",
		"Styles[1]": "styles[1]",
		"Hidden":    "", "Nothing": "", "Mode.X": "", "": "", "hidden": "",
	} {
		got, ok := conftag.Name(reflect.TypeFor[*config](), field)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q %v, want %q", field, got, ok, want)
		}
	}
}

func TestUnreadableTag(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "one..") {
			t.Errorf("the panic says %q", text)
		}
	}()
	conftag.Look("one..", reflect.ValueOf(2))
}
