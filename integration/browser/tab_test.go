//go:build unix

package browser

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// demanded fails what cannot be had, instead of skipping it.
var demanded = os.Getenv("LONGSHORE_BROWSER") != ""

// pictures is where pictures of the page go; by default none are taken.
var pictures = flag.String("pictures", "", "folder for pictures of the page, for the docs")

type step = chromedp.Action[chromedp.Void]

// A chrome is a browser that runs until the test ends. What pages write to its console, and what the policy refuses, is kept.
type chrome struct {
	t   *testing.T
	ctx context.Context

	mu  sync.Mutex
	bad []string
}

// chromium is the program.
func chromium(t *testing.T) string {
	t.Helper()
	names := []string{"chromium", "chromium-browser", "google-chrome"}
	if c := os.Getenv("CHROMIUM"); c != "" {
		names = []string{c}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	missing(t, "there is no Chromium: install it, or name it in CHROMIUM")
	return ""
}

func missing(t *testing.T, what string) {
	t.Helper()
	if demanded {
		t.Fatal(what)
	}
	t.Skip(what)
}

// open starts a browser.
func open(t *testing.T) *chrome {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(2*time.Minute),
		chromedp.Flag("disable-component-update", true))
	allocator, end := chromedp.NewExecAllocator(t.Context(), opts...)
	c := &chrome{t: t}
	ctx, close := chromedp.NewContext(allocator)
	c.ctx = ctx
	t.Cleanup(func() { close(); end() })
	c.do("start")
	c.listen()
	return c
}

// another is a second tab of the same browser.
func (c *chrome) another() *chrome {
	c.t.Helper()
	ctx, close := chromedp.NewContext(c.ctx)
	c.t.Cleanup(close)
	tab := &chrome{t: c.t, ctx: ctx}
	tab.do("open a tab")
	tab.listen()
	return tab
}

func (c *chrome) listen() {
	c.t.Helper()
	must(c.t, chromedp.Listen(c.ctx, func(e any) {
		text := ""
		switch e := e.(type) {
		case *runtime.EventConsoleAPICalled, *runtime.EventExceptionThrown:
			b, _ := json.Marshal(e)
			text = string(b)
		case *log.EventEntryAdded:
			text = e.Entry.Text + " " + e.Entry.URL
		}
		if text != "" {
			c.mu.Lock()
			c.bad = append(c.bad, text)
			c.mu.Unlock()
		}
	}))
}

// said is what came on the console since it was asked last.
func (c *chrome) said() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.bad
	c.bad = nil
	return list
}

// quiet fails where something came on the console.
func (c *chrome) quiet(when string) {
	c.t.Helper()
	for _, text := range c.said() {
		c.t.Errorf("%s, the browser says: %s", when, text)
	}
}

func (c *chrome) do(what string, steps ...step) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, 2*time.Minute)
	defer cancel()
	if what == "start" || what == "open a tab" { // what is bound to its context ends with it
		ctx = c.ctx
	}
	if err := chromedp.Do(ctx, steps...); err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
}

func eval[T any](c *chrome, js string) T {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, 2*time.Minute)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		c.t.Fatalf("%s: %v", js, err)
	}
	return v
}

// until waits for a condition of the page. It asks again where there was no answer for ten seconds: what is asked while a page
// goes away is sometimes never answered.
func (c *chrome) until(what, js string) {
	c.t.Helper()
	for over := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
		v, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+js+")"))
		cancel()
		if err == nil && v {
			return
		}
		if time.Now().After(over) {
			c.t.Fatalf("not within two minutes: %s (%v): %s", what, err, eval[string](c,
				"`${document.readyState}, ${window.before}: ${document.body.innerText.slice(0, 600)}`"))
		}
	}
}

// open goes to an address, and waits for the page.
func (c *chrome) visit(url string) {
	c.t.Helper()
	c.do(url, chromedp.Navigate(url))
	c.until(url+" is there", `document.readyState === "complete" && document.getElementById("main")`)
}

// click presses an element, and waits for the page that comes of it. The element is found and pressed in one step: what is live
// may move it away between two.
func (c *chrome) click(selector string) {
	c.t.Helper()
	c.until(selector+" can be pressed", fmt.Sprintf(`document.querySelector(%q)?.checkVisibility()`, selector))
	eval[int](c, fmt.Sprintf(`window.before = true; setTimeout(() => document.querySelector(%q).click()); 0`, selector))
	c.until("after a click on "+selector, `!window.before && document.readyState === "complete" && document.getElementById("main")`)
}

// look sets the width of the window and the colours.
func (c *chrome) look(width int64, scheme string) {
	c.t.Helper()
	var opts []chromedp.EmulateViewportOption
	if width < 500 {
		opts = append(opts, chromedp.EmulateMobile)
	}
	c.do("viewport", chromedp.EmulateViewport(width, 900, opts...),
		func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia,
				emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			return chromedp.Void{}, err
		})
}

// axe is what axe-core finds wrong with the page.
func (c *chrome) axe(source string) string {
	c.t.Helper()
	if !eval[bool](c, "typeof axe === 'object'") {
		eval[int](c, source+";0")
	}
	return eval[string](c, `axe.run().then(r => r.violations.map(v => v.id + " (" + v.nodes.length + "): " + `+
		`v.nodes[0].html.slice(0, 160)).join("\n"))`)
}

// axeSource is axe-core, of the npm package: it is evaluated, and not shipped.
func axeSource(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(os.Getenv("AXE"))
	if err != nil {
		missing(t, "there is no axe-core: AXE is to name axe.min.js of its npm package")
	}
	return string(b)
}

// picture takes one for the docs, where that is asked for.
func (c *chrome) picture(name string, height int) {
	c.t.Helper()
	if *pictures == "" {
		return
	}
	c.do("picture "+name, chromedp.EmulateViewport(eval[int64](c, "innerWidth"), int64(height)))
	b, err := chromedp.Run(c.ctx, chromedp.CaptureScreenshot())
	must(c.t, err)
	must(c.t, os.WriteFile(*pictures+"/"+name+".png", b, 0o644))
	if len(b) > 150<<10 {
		c.t.Errorf("%s.png has %d bytes", name, len(b))
	}
}

// number reads a number in the text of an element.
func (c *chrome) number(selector string) int {
	c.t.Helper()
	text := eval[string](c, `document.querySelector(`+strconv.Quote(selector)+`)?.innerText ?? ""`)
	digits := strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, text)
	n, _ := strconv.Atoi(digits)
	return n
}
