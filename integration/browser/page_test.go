//go:build unix

package browser

import (
	"fmt"
	"slices"
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
				seeFinishedAbove(c, w)
				c.quiet(at + ", claims")
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

const (
	// promptly is how old a decision is at most when the page shows it.
	promptly = 2 * time.Second
	// stall is how long the browser may have stood still, or waited for an answer, in a round that is held against the page.
	stall = 250 * time.Millisecond
	// rounds are how many bursts there are where the machine was too slow to tell.
	rounds = 5
)

// seeDecision: a burst, and the decision that it leads to, in the table within two seconds, and as a mark with its reason. The
// time is the browser's, and what the page says is what the admin server says in JSON. Where it takes longer although the browser
// did not stand still the page is to blame, else there is another burst.
func seeDecision(c *chrome, w *world) {
	c.t.Helper()
	c.visit(w.url + "/ui/c/orders?span=3m")
	c.until("the charts are there", `document.querySelectorAll("figure svg path.line").length >= 8`)
	eval[int](c, watchDecisions)
	w.slow.Store(true)
	defer w.slow.Store(false)
	for round := 1; ; round++ {
		eventually(c.t, "the pool is small", func() bool { s := w.consumer.Stats().Pool; return s.Live == s.Min && s.Backlog == 0 })
		began := time.UnixMilli(eval[int64](c, "window.stood = 0; Date.now()"))
		w.publish(500, "good")
		var taken time.Time
		eventually(c.t, "there is a decision", func() bool { taken = w.decided(); return taken.After(began) })
		row := quote(taken.Local().Format("15:04:05.000"))
		c.until("a decision appears", `window.seen[`+row+`]`)
		shown := time.UnixMilli(eval[int64](c, `window.seen[`+row+`]`))
		stood := time.Duration(eval[float64](c, standstill) * float64(time.Millisecond))
		age, after := shown.Sub(taken), shown.Sub(began)
		c.t.Logf("a decision was shown %v after it was taken, %v after the burst began; the browser stood still for %v",
			age.Round(time.Millisecond), after, stood.Round(time.Millisecond))
		if after <= promptly {
			break
		}
		if age > promptly && stood < stall || round == rounds {
			c.t.Errorf("a decision is shown %v after it was taken, %v after the burst, want both within %v", age, after, promptly)
			break
		}
	}
	c.until("it is a mark with its reason",
		`[...document.querySelectorAll("#chart-workers .mark title")].some(m => /→ \d+, [a-z]/.test(m.textContent))`)
	c.until("it is in the sentence", `/From \d+ to \d+ .* ago: /.test(document.getElementById("workers-now").innerText)`)
	eventually(c.t, "the burst is handled", func() bool { return w.consumer.Stats().InFlight == 0 })
}

// watchDecisions notes when a row of the table of decisions is there, and how long the page did not come to do anything.
const watchDecisions = `window.seen = {}; window.stood = 0;
	{
		const note = () => {
			for (const row of document.querySelectorAll("#decisions tbody tr")) window.seen[row.cells[0].innerText] ||= Date.now();
		};
		new MutationObserver(note).observe(document.getElementById("live-tables"),
			{subtree: true, childList: true, characterData: true});
		let last = performance.now();
		setInterval(() => { const now = performance.now(); window.stood = Math.max(window.stood, now - last - 50); last = now; }, 50);
	} 0`

// standstill is how long the page stood still at most, or waited for one of its last answers.
const standstill = `Math.max(window.stood, ...performance.getEntriesByType("resource").filter(e => ` +
	`e.name.includes("/live")).slice(-4).map(e => e.duration))`

// seeFinishedAbove: behind a message whose handler does not come to its end, others with its key are handled. The page shows the
// one in its handler, what its claim holds, and, where the broker is asked, how many are finished above what is settled.
func seeFinishedAbove(c *chrome, w *world) {
	c.t.Helper()
	const behind = 40
	release := make(chan struct{})
	w.hold.Store(&release)
	before := w.consumer.Stats().Handled
	c.visit(w.url + "/ui/c/orders")
	w.publishTo("one customer", append([]string{"hold"}, slices.Repeat([]string{"good"}, behind)...)...)
	eventually(c.t, "those behind it are handled", func() bool { return w.consumer.Stats().Handled == before+behind })
	rows := func(of, is string) string {
		return `[...document.querySelectorAll("[aria-labelledby=` + of + `] tbody tr")].` + is
	}
	c.until("it is in its handler", rows("h-calls", `length === 1`)+` && `+rows("h-calls", fmt.Sprintf(
		`some(r => r.cells[0].innerText.startsWith(%q))`, inbox)))
	c.until("its claim holds it", rows("h-claims", `some(r => Number(r.cells[1].innerText) >= 1 && r.cells[2].innerText === "1")`))
	if w.system.lags != nil {
		c.until("the others are finished above what is settled", rows("h-lags", fmt.Sprintf(`some(r => r.cells[4].innerText === `+
			`"%d")`, behind)))
	}
	close(release)
	eventually(c.t, "it is handled", func() bool { return w.consumer.Stats().InFlight == 0 })
	c.until("no handler has it", rows("h-calls", `every(r => r.innerText === "none")`))
	if w.system.lags != nil {
		c.until("all is settled", rows("h-lags", `every(r => r.cells[3].innerText === "0" && r.cells[4].innerText === "0")`))
	}
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

// replayAll: 10,000 letters, their plan, the job with its progress, stopped in the middle, gone on with to the end. The broker
// confirms no more than half of them until the job is told to stop: a job may else be done before its page is there.
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
	confirm := w.replays.after(letters / 2)
	defer confirm()
	c.click("#sure")
	c.until("progress", `(p => p && p.value > 0 && p.value < p.max)(document.querySelector("progress"))`)
	c.click("#job-stop")
	confirm()
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

// TestAccessible: axe-core finds nothing on any page, at both widths, in both schemes, and none scrolls sideways, says something
// on the console or breaks the policy; on each broker, whose tables differ.
func TestAccessible(t *testing.T) {
	source := axeSource(t)
	for _, name := range []string{"mem", "nats", "kafka"} {
		t.Run(name, func(t *testing.T) {
			c := open(t)
			w := begin(t, systems[name](t))
			w.publish(200, "good")
			w.publish(3, "bad")
			eventually(t, "three letters", func() bool { return w.consumer.Stats().DeadLettered == 3 })
			logIn(c, w)
			c.said()
			accessible(c, w, source)
		})
	}
}

func accessible(c *chrome, w *world, source string) {
	c.t.Helper()
	c.visit(w.url + "/ui/c/orders/letters")
	letter := eval[string](c, `document.querySelector("main tbody a").getAttribute("href")`)
	pages := []string{"/ui/", "/ui/login", "/ui/events", "/ui/c/orders", "/ui/c/orders/letters", letter,
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
					c.t.Errorf("%s, axe finds:\n%s", at, found)
				}
				if over := eval[int](c, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
					c.t.Errorf("%s scrolls sideways by %d px", at, over)
				}
				for _, text := range c.said() {
					if !strings.Contains(page, "class=none") { // is answered with 400, which the browser tells
						c.t.Errorf("%s, the browser says: %s", at, text)
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

// TestPictures takes those of the docs, on each real broker: go test -run Pictures -pictures ../../docs/pictures.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("no folder is named with -pictures")
	}
	for _, name := range []string{"nats", "kafka"} {
		t.Run(name, func(t *testing.T) {
			c := open(t)
			w := begin(t, systems[name](t))
			eventually(t, "it is ready", w.consumer.Ready)
			release := make(chan struct{})
			w.hold.Store(&release)
			w.slow.Store(true)
			for range 4 {
				w.publish(2000, "good")
				w.publish(3, "bad")
				time.Sleep(12 * time.Second) // time is what the pictures show
			}
			w.publishTo("one customer", append([]string{"hold"}, slices.Repeat([]string{"good"}, 40)...)...)
			c.look(1100, "light")
			c.visit(w.url + "/ui/c/orders?span=3m")
			c.until("the broker tells what is finished above",
				`[...document.querySelectorAll("[aria-labelledby=h-lags] tbody tr")].some(r => Number(r.cells[4].innerText) > 0)`)
			w.publish(2000, "good")
			c.until("the burst is seen", `/[1-9]\d* busy of/.test(document.querySelector(".tiles").innerText)`)
			c.picture("page-"+name, 1100)
			c.until("the burst is over", `/^0/.test([...document.querySelectorAll(".tiles div")].find(d => `+
				`d.innerText.startsWith("Handled")).querySelector("dd").innerText)`)
			c.look(1100, "light")
			eval[int](c, `document.getElementById("h-claims").scrollIntoView(); 0`)
			c.picture("page-"+name+"-claims", 420)
			c.look(390, "dark")
			c.visit(w.url + "/ui/c/orders?span=3m")
			c.picture("page-"+name+"-phone", 844)
			close(release)
		})
	}
}

func quote(s string) string { return fmt.Sprintf("%q", s) }
