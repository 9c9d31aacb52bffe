package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// letters are how many are replayed.
const letters = 10_000

// TestPage: what an operator does, from the first look to the last letter, on each broker, on a desk in light and on a
// telephone in dark.
func TestPage(t *testing.T) {
	for _, name := range []string{"mem", "nats", "kafka"} {
		t.Run(name, func(t *testing.T) {
			c := open(t)
			w := begin(t, systems[name](t))
			eventually(t, "it is ready", w.consumer.Ready)
			for _, as := range []struct {
				width  int64
				scheme string
			}{{1400, "light"}, {390, "dark"}} {
				c.look(as.width, as.scheme)
				at := fmt.Sprintf("%d px, %s", as.width, as.scheme)
				seeDecision(c, w)
				c.quiet(at + ", a decision")
				logIn(c, w)
				c.said() // a wrong token is answered with 401, which the browser tells
				pauseAndResume(c, w)
				keepsWhatIsTyped(c, w)
				c.quiet(at + ", controls")
				replayAll(c, w, as.width)
				c.quiet(at + ", the replay")
				c.click("header form button") // logs out
			}
		})
	}
}

// seeDecision: a burst, and the decision that it leads to, in the table and as a mark with its reason.
func seeDecision(c *chrome, w *world) {
	c.t.Helper()
	c.visit(w.url + "/ui/c/orders?span=3m")
	c.until("the charts are there", `document.querySelectorAll("figure svg path.line").length >= 8`)
	const newest = `document.querySelector("#decisions tbody tr td").innerText`
	was := eval[string](c, newest)
	w.slow.Store(true)
	defer w.slow.Store(false)
	begin := time.Now()
	w.publish(500, "good")
	c.until("a decision appears", newest+` !== `+quote(was))
	c.t.Logf("a decision was seen %v after the burst began", time.Since(begin).Round(10*time.Millisecond))
	c.until("it is a mark with its reason", `[...document.querySelectorAll("#chart-workers .mark title")].some(m => /→ \d+, [a-z]/.test(m.textContent))`)
	c.until("it is in the sentence", `/From \d+ to \d+ .* ago: /.test(document.getElementById("workers-now").innerText)`)
	eventually(c.t, "the burst is handled", func() bool { return w.consumer.Stats().InFlight == 0 })
}

func logIn(c *chrome, w *world) {
	c.t.Helper()
	c.visit(w.url + "/ui/login")
	c.do("a wrong token", chromedp.SendKeys("input[name=token]", "no"))
	c.click("main form button")
	c.until("it is refused", `document.querySelector(".wrong").innerText.includes("not the token")`)
	c.do("the token", chromedp.SendKeys("input[name=token]", token))
	c.click("main form button")
	c.until("it is let in", `document.querySelector("header form[action='/ui/logout']")`)
}

func pauseAndResume(c *chrome, w *world) {
	c.t.Helper()
	c.visit(w.url + "/ui/c/orders")
	c.click("#pause")
	c.until("it is paused", `document.querySelector("h1 small").innerText === "paused"`)
	if !w.consumer.Stats().Paused {
		c.t.Error("the page says paused, and the consumer is not")
	}
	c.click("#pause")
	c.until("it goes on", `document.querySelector("h1 small").innerText === "running"`)
	if w.consumer.Stats().Paused {
		c.t.Error("the consumer is still paused")
	}
}

// keepsWhatIsTyped: a number in a form, the focus, a selection, an open table and how far one is scrolled survive ten refreshes.
func keepsWhatIsTyped(c *chrome, w *world) {
	c.t.Helper()
	c.visit(w.url + "/ui/c/orders")
	eval[int](c, `document.querySelector("#table-workers").open = true;
		{ const i = document.querySelector("#workers input[name=max]"); i.value = "2"; i.focus(); i.setSelectionRange(0, 1); }
		window.scrollTo(0, 150); window.chosen = document.querySelector("#h-decisions").firstChild; 0`)
	const fetches = `performance.getEntriesByType("resource").filter(e => e.name.includes("/live")).length`
	n := eval[int](c, fetches)
	c.until("ten refreshes", fmt.Sprintf("%s >= %d", fetches, n+10))
	for what, js := range map[string]string{
		"the number":    `document.querySelector("#workers input[name=max]").value === "2"`,
		"the focus":     `document.activeElement.name === "max"`,
		"its selection": `document.activeElement.selectionEnd === 1`,
		"the table":     `document.querySelector("#table-workers").open`,
		"the scrolling": `window.scrollY === 150`,
		"elements":      `document.querySelector("#h-decisions").firstChild === window.chosen`,
	} {
		if !eval[bool](c, js) {
			c.t.Errorf("%s did not survive ten refreshes", what)
		}
	}
}

// replayAll: 10,000 letters, their plan, the job with its progress, stopped in the middle, gone on with to the end.
func replayAll(c *chrome, w *world, width int64) {
	c.t.Helper()
	w.healed.Store(false)
	before, handled := w.consumer.Stats().DeadLettered, w.consumer.Stats().Handled
	w.publish(letters, "bad")
	eventually(c.t, "all are dead letters", func() bool { return w.consumer.Stats().DeadLettered == before+letters })
	w.healed.Store(true)
	c.visit(w.url + "/ui/c/orders/letters?state=waiting")
	if n := c.number("#total"); n != letters*100+50 { // "10000 letters in …; here are 50"
		c.t.Errorf("the list says %q", eval[string](c, `document.getElementById("total").innerText`))
	}
	if width > 1000 {
		c.picture("letters", 700)
	}
	c.do("the rate", chromedp.Evaluate[chromedp.Void](`document.querySelector("input[name=rate]").value = "4000"; undefined`))
	c.click("button[name=scope][value=all]")
	c.until("the plan names them", `document.getElementById("plan").innerText.includes("10,000 letters would be replayed")`)
	if got := w.consumer.Stats().Handled; got != handled {
		c.t.Errorf("the plan has replayed %d", got-handled)
	}
	c.click("#sure")
	c.until("progress", `(p => p && p.value > 0 && p.value < p.max)(document.querySelector("progress"))`)
	c.click("#job-stop")
	c.until("it has stopped", `document.querySelector("#job [role=status]").innerText.includes("stopped")`)
	got := w.consumer.Stats().Handled - handled
	if got == 0 || got >= letters {
		c.t.Errorf("when it was stopped %d were replayed", got)
	}
	c.click("#job-continue")
	c.until("it is done", `document.querySelector("#job [role=status]").innerText.includes("done, 10,000 of 10,000")`)
	eventually(c.t, "each is handled", func() bool { return w.consumer.Stats().Handled >= handled+letters })
	if got := w.consumer.Stats().Handled - handled; got != letters {
		c.t.Errorf("%d were handled, want each once: %d", got, letters)
	}
}

// TestAccessible: axe-core finds nothing on any page, at both widths, in both schemes, and none scrolls sideways.
func TestAccessible(t *testing.T) {
	source := axeSource(t)
	c := open(t)
	w := begin(t, inMemory(t))
	w.publish(200, "good")
	w.publish(3, "bad")
	eventually(t, "three letters", func() bool { return w.consumer.Stats().DeadLettered == 3 })
	logIn(c, w)
	c.said()
	pages := []string{"/ui/", "/ui/login", "/ui/events", "/ui/c/orders", "/ui/c/orders/letters", "/ui/c/orders/letters/0/0",
		"/ui/c/orders/letters?class=none", "plan"}
	for _, width := range []int64{390, 1400} {
		for _, scheme := range []string{"light", "dark"} {
			c.look(width, scheme)
			for _, page := range pages {
				at := fmt.Sprintf("%s at %d px, %s", page, width, scheme)
				if page == "plan" {
					c.visit(w.url + "/ui/c/orders/letters")
					c.click("button[name=scope][value=all]")
				} else {
					c.visit(w.url + page)
				}
				eval[int](c, `document.querySelectorAll("details").forEach(d => d.open = true); 0`)
				if found := c.axe(source); found != "" {
					t.Errorf("%s, axe finds:\n%s", at, found)
				}
				if over := eval[int](c, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
					t.Errorf("%s scrolls sideways by %d px", at, over)
				}
				for _, text := range c.said() {
					if !strings.Contains(page, "class=none") { // is answered with 400, which the browser tells
						t.Errorf("%s, the browser says: %s", at, text)
					}
				}
			}
		}
	}
}

// TestSeesWhatIsWrong is the proof that the tests above can fail: a script in the page is refused and told of, and axe finds a
// picture without a text.
func TestSeesWhatIsWrong(t *testing.T) {
	source := axeSource(t)
	c := open(t)
	w := begin(t, inMemory(t))
	c.visit(w.url + "/ui/")
	c.quiet("at first")
	eval[int](c, `{ const s = document.createElement("style"); s.textContent = "h1 { color: red }"; document.head.append(s); } 0`)
	eventually(t, "the style is told of", func() bool {
		return strings.Contains(strings.Join(c.said(), "\n"),
			"Content Security Policy")
	})
	eval[int](c, `document.querySelector("main").append(new Image()); 0`)
	if found := c.axe(source); !strings.Contains(found, "image-alt") {
		t.Errorf("axe finds %q", found)
	}
}

// TestKeyboard: all of the page can be reached with the tabulator, and a button works with the space bar.
func TestKeyboard(t *testing.T) {
	c := open(t)
	w := begin(t, inMemory(t))
	logIn(c, w)
	c.visit(w.url + "/ui/c/orders")
	reached := false
	for range 40 {
		c.do("tabulator", chromedp.KeyEvent("\t"))
		if reached = eval[bool](c, `document.activeElement.id === "pause"`); reached {
			break
		}
	}
	if !reached {
		t.Fatal("the tabulator does not reach Pause")
	}
	if !eval[bool](c, `getComputedStyle(document.activeElement).outlineStyle !== "none"`) {
		t.Error("the focus is not to be seen")
	}
	c.do("the space bar", chromedp.KeyEvent(" "))
	eventually(t, "it is paused", func() bool { return w.consumer.Stats().Paused })
}

// TestStopAndStartAgain: the server ends while ten tabs look; when it is back, they go on by themselves.
func TestStopAndStartAgain(t *testing.T) {
	c := open(t)
	w := begin(t, inMemory(t))
	tabs := []*chrome{c}
	for range 9 {
		tabs = append(tabs, c.another())
	}
	for _, tab := range tabs {
		tab.visit(w.url + "/ui/c/orders")
	}
	t.Logf("the server ended after %v", w.halt().Round(time.Millisecond))
	c.until("the page says that it is old", `document.getElementById("stale").innerText !== ""`)
	w.serve()
	c.until("it goes on by itself", `document.getElementById("stale").innerText === ""`)
	w.publish(5, "good")
	eventually(t, "they are handled", func() bool { return w.consumer.Stats().Handled == 5 })
	for _, text := range c.said() {
		if !strings.Contains(text, "ERR_CONNECTION_REFUSED") {
			t.Errorf("the browser says: %s", text)
		}
	}
}

// TestPictures takes those of the docs: go test -run Pictures -pictures ../../docs/pictures.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("no folder is named with -pictures")
	}
	c := open(t)
	w := begin(t, onKafka(t))
	w.slow.Store(true)
	for range 4 {
		w.publish(400, "good")
		w.publish(3, "bad")
		time.Sleep(12 * time.Second) // time is what the pictures show
	}
	go func() {
		for range 20 {
			w.publish(50, "good")
		}
	}()
	c.look(1100, "light")
	c.visit(w.url + "/ui/c/orders?span=3m")
	time.Sleep(2 * time.Second)
	c.picture("page", 900)
	c.look(390, "dark")
	c.visit(w.url + "/ui/c/orders?span=3m")
	c.picture("page-phone", 844)
}

func quote(s string) string { return fmt.Sprintf("%q", s) }
