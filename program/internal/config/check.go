package config

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Defaults that contradictions are held against. They are those of the packages that take the values.
const (
	defaultKillGrace  = 30 * time.Second
	defaultStuckAfter = 10 * time.Second
	defaultMaxHold    = time.Hour
	defaultNoProgress = time.Minute
	defaultPoolMax    = 64
	defaultInitial    = 200 * time.Millisecond
	minToken          = 16
)

// maxDuration is the longest duration that is taken: what brokers write as 32 bits of milliseconds.
const maxDuration = math.MaxInt32 * time.Millisecond

var (
	// LogLevels are what log.level may be.
	LogLevels = []string{"trace", "debug", "info", "warn", "error"}
	// Policies are the names that pool.policy may have.
	Policies = []string{"report-status", "fixed", "classic", "queue-threshold", "aimd"}
	// Resources are what pool.mind may name.
	Resources    = []string{"cpu", "memory"}
	logFormats   = []string{"auto", "json", "console"}
	consumerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)
)

// check finds what contradicts itself, whatever else was found.
func (d *Document) check() {
	f := &d.File
	d.oneOf("log.level", f.Log.Level, LogLevels)
	d.oneOf("log.format", f.Log.Format, logFormats)
	d.duration("kill_grace", f.KillGrace)
	d.within("embedded.port", f.Embedded.Port, 0, math.MaxUint16)
	if f.Admin != nil {
		d.checkAdmin(f.Admin)
	}
	if len(f.Consumers) == 0 {
		d.Find("consumers", "is missing or empty: there is nothing to run")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Consumers)) {
		at := "consumers." + name
		if !consumerName.MatchString(name) {
			d.add(at, "a consumer's name has 1 to 63 letters, digits, - and _")
		}
		if c := f.Consumers[name]; c != nil {
			d.checkConsumer(at, c)
		}
	}
	d.checkDurables()
	d.checkStreams()
	d.checkGroups()
	d.checkCircles()
}

func (d *Document) checkAdmin(a *Admin) {
	if a.Listen != "" {
		_, port, err := net.SplitHostPort(a.Listen)
		if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
			d.Find("admin.listen", "is %q, want host:port, as in 127.0.0.1:8080", a.Listen)
		}
	}
	if n := len(a.Token.Reveal()); n > 0 && n < minToken {
		path := "admin.token"
		if a.TokenFile != "" {
			path += "_file"
		}
		d.Find(path, "the token has %d bytes, want at least %d", n, minToken)
	}
	d.duration("admin.no_progress", a.NoProgress)
}

func (d *Document) checkConsumer(at string, c *Consumer) {
	d.checkOrder(at, c)
	d.checkPool(at, c)
	d.checkRetry(at+".retry", c.Retry)
	d.checkTimes(at, c)
	d.checkRoutes(at, c)
	d.checkSource(at, c)
	d.checkRetryTopics(at, c)
	if c.DeadLetter != nil {
		d.checkDeadLetter(at, c)
	}
	d.natural(at+".max_message_bytes", int64(c.MaxMessageBytes))
	d.natural(at+".max_header_bytes", int64(c.MaxHeaderBytes))
}

func (d *Document) checkSource(at string, c *Consumer) {
	for _, in := range c.Reads() {
		path := at + "." + in.Name
		kinds := slices.DeleteFunc(d.kinds(), func(kind string) bool { return !d.Has(path + "." + kind) })
		switch {
		case len(kinds) > 1:
			d.Find(path, "has %s: a source is one of them", kindsText(kinds))
		case len(kinds) == 1, d.Has(at+".sources") && in.Name == "source": // the second is empty
		case in.Name == "source":
			d.Find(path, "is missing: want source: {%s: …}", strings.Join(d.kinds(), ": …} or source: {"))
		case len(d.adapters) == 0:
			d.Find(path, "has neither nats nor kafka")
		default:
			d.Find(path, "has none of %s", kindsText(d.kinds()))
		}
		if in.NATS != nil {
			d.checkNATS(path+".nats", in.NATS)
		}
		if in.Kafka != nil {
			d.checkKafka(path+".kafka", in.Kafka)
			if in.Kafka.CrashLimit > 0 && c.DeadLetter == nil {
				d.Find(path+".kafka.crash_limit", "is set, and there is no dead_letter: what kills its process has no place to go")
			}
		}
	}
	d.checkSources(at, c)
	d.checkPriority(at+".priority", c)
}

func (d *Document) checkPool(at string, c *Consumer) {
	p := c.Pool
	d.atLeast(at+".pool.min", int64(p.Min), 1)
	d.atLeast(at+".pool.max", int64(p.Max), 1)
	d.duration(at+".pool.idle_timeout", p.IdleTimeout)
	d.oneOf(at+".pool.policy", p.Policy, Policies)
	for i, r := range p.Mind {
		d.oneOf(fmt.Sprintf("%s.pool.mind[%d]", at, i), r, Resources)
	}
	most := cmp.Or(p.Max, max(defaultPoolMax, p.Min))
	if least := cmp.Or(p.Min, 1); most < least {
		d.Find(at+".pool.max", "is %d, below pool.min, %d", most, least)
	}
	d.atLeast(at+".budget.messages", int64(c.Budget.Messages), 1)
	d.atLeast(at+".budget.bytes", c.Budget.Bytes, 1)
	if n := c.Budget.Messages; n > 0 && n < most {
		d.Find(at+".budget.messages", "is %d, below pool.max, %d: workers could never all be busy", n, most)
	}
	for _, in := range c.Reads() {
		if n := in.NATS; n != nil && n.MaxAckPending > 0 && n.MaxAckPending < most {
			d.Find(at+"."+in.Name+".nats.max_ack_pending", "is %d, below pool.max, %d: workers could never all be busy", n.MaxAckPending, most)
		}
	}
}

func (d *Document) checkRetry(at string, r Retry) {
	d.atLeast(at+".max_attempts", int64(r.MaxAttempts), 1)
	d.duration(at+".give_up_after", r.GiveUpAfter)
	d.duration(at+".backoff.initial", r.Backoff.Initial)
	d.duration(at+".backoff.max", r.Backoff.Max)
	if longest, first := r.Backoff.Max, cmp.Or(r.Backoff.Initial, defaultInitial); longest > 0 && longest < first {
		d.Find(at+".backoff.max", "is %v, below backoff.initial, %v", longest, first)
	}
	if d.Has(at+".backoff.factor") && !(r.Backoff.Factor >= 1 && r.Backoff.Factor <= 100) {
		d.Find(at+".backoff.factor", "is %v, want 1 to 100", r.Backoff.Factor)
	}
	if j := r.Backoff.Jitter; !(j >= 0 && j <= 1) {
		d.Find(at+".backoff.jitter", "is %v, want 0 to 1", j)
	}
}

func (d *Document) checkTimes(at string, c *Consumer) {
	d.span(at+".timeout", c.Timeout)
	d.span(at+".open_timeout", c.OpenTimeout)
	d.span(at+".drain_timeout", c.DrainTimeout)
	d.duration(at+".stuck_after", c.StuckAfter)
	d.atLeast(at+".max_stuck", int64(c.MaxStuck), 1)
	if c.Timeout == 0 {
		for _, needs := range []string{".stuck_after", ".max_stuck"} {
			if d.Has(at + needs) {
				d.Find(at+needs, "is set and timeout is not: a handler without a timeout is never stuck")
			}
		}
	}
	for _, in := range c.Reads() {
		n := in.NATS
		if n == nil || c.Timeout <= 0 {
			continue
		}
		hold, longest := cmp.Or(n.MaxHold, defaultMaxHold), c.Timeout+cmp.Or(c.StuckAfter, defaultStuckAfter)
		if hold > 0 && hold < longest {
			d.Find(at+"."+in.Name+".nats.max_hold", "is %v, below timeout and stuck_after together, %v: the server would give the message to another meanwhile", hold, longest)
		}
	}
}

func (d *Document) checkRoutes(at string, c *Consumer) {
	if c.Batch != nil {
		d.checkBatch(at, c)
	} else if len(c.Routes) == 0 {
		d.Find(at+".routes", "is missing or empty: nothing would be handled")
	}
	for i, r := range c.Routes {
		path := at + ".routes[" + strconv.Itoa(i) + "]"
		if r.Handler == "" {
			d.Find(path+".handler", "is missing")
		}
		d.checkMatch(path, r, c)
	}
	for i, m := range c.Middleware {
		if m.Use == "" {
			d.Find(at+".middleware["+strconv.Itoa(i)+"].use", "is missing")
		}
	}
}

// checkBatch: what is for single messages is not asked for beside it.
func (d *Document) checkBatch(at string, c *Consumer) {
	b, path := c.Batch, at+".batch"
	for _, key := range []string{"routes", "no_route", "middleware"} {
		if d.Has(at + "." + key) {
			d.Find(at+"."+key, "is set, and so is batch: a batch has all messages of the consumer, and its handler stands alone")
		}
	}
	if b.Handler == "" {
		d.Find(path+".handler", "is missing")
	}
	d.atLeast(path+".size", int64(b.Size), 1)
	d.atLeast(path+".bytes", int64(b.Bytes), 1)
	d.duration(path+".linger", b.Linger)
}

// checkMatch: a route that no message can take is a mistake, where it is known which messages there are.
func (d *Document) checkMatch(path string, r Route, c *Consumer) {
	var reads, keys []string
	for _, in := range c.Reads() {
		var some []string
		if n := in.NATS; n != nil {
			some, keys = n.Subjects, append(keys, in.Name+".nats.subjects")
		} else if k := in.Kafka; k != nil {
			some, keys = k.Topics, append(keys, in.Name+".kafka.topics")
			d.checkRoundTrip(path, in.Name, r, k)
		}
		if len(some) == 0 {
			return // nobody knows what it reads
		}
		reads = append(reads, some...)
	}
	if len(reads) > 0 && r.Match != "" && !slices.ContainsFunc(reads, func(s string) bool { return Overlap(s, r.Match) }) {
		d.Find(path+".match", "is %q, and no message of %s, %q, can match it: the route would never be taken", r.Match, strings.Join(keys, " and "), reads)
	}
}

// oneOf reports a value that is set and not in a list.
func (d *Document) oneOf(path, value string, list []string) {
	if d.Has(path) && !slices.Contains(list, value) {
		d.Find(path, "is %q, want one of %v", value, list)
	}
}

// duration reports one that is set and not positive, or too long.
func (d *Document) duration(path string, v time.Duration) {
	if d.Has(path) && v == 0 {
		d.Find(path, "is 0s, want more")
	}
	d.span(path, v)
}

// span is duration for one that may be 0.
func (d *Document) span(path string, v time.Duration) {
	switch {
	case v < 0:
		d.Find(path, "is %v, negative", v)
	case v > maxDuration:
		d.Find(path, "is %v, more than %v (32 bits of milliseconds)", v, maxDuration)
	}
}

func (d *Document) atLeast(path string, v, least int64) {
	if d.Has(path) && v < least {
		d.Find(path, "is %d, want at least %d", v, least)
	}
}

func (d *Document) natural(path string, v int64) {
	if v < 0 {
		d.Find(path, "is %d, negative", v)
	}
}

func (d *Document) within(path string, v, least, most int) {
	if v < least || v > most {
		d.Find(path, "is %d, want %d to %d", v, least, most)
	}
}
