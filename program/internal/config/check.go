package config

import (
	"cmp"
	"maps"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
)

// minToken is the shortest token of the admin server, in bytes.
const minToken = 16

var consumerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// check finds what contradicts itself, whatever else was found.
func (d *Document) check() {
	f := &d.File
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
	d.checkValues("", reflect.ValueOf(f).Elem())
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
}

func (d *Document) checkConsumer(at string, c *Consumer) {
	d.checkOrder(at, c)
	d.checkPool(at, c)
	if j := c.Retry.Backoff.Jitter; j < 0 || j > 1 { // in Go what is negative means none
		d.Find(at+".retry.backoff.jitter", "is %v, want 0 to 1", j)
	}
	d.checkTimes(at, c)
	d.checkRoutes(at, c)
	d.checkSource(at, c)
	d.checkRetryTopics(at, c)
	if c.DeadLetter != nil {
		d.checkDeadLetter(at, c)
	}
	d.checkEngine(at, c)
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
			d.Find(path, "has none of nats, nats_core and kafka")
		default:
			d.Find(path, "has none of %s", kindsText(d.kinds()))
		}
		if in.NATS != nil {
			d.checkNATS(path+".nats", in.NATS)
		}
		if in.NATSCore != nil {
			d.checkNATSCore(path+".nats_core", in.NATSCore)
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

// checkPool: all workers can be busy.
func (d *Document) checkPool(at string, c *Consumer) {
	most := cmp.Or(c.Pool.Max, max(consumer.DefaultMaxWorkers, c.Pool.Min))
	for _, in := range c.Reads() {
		if n := in.NATS; n != nil && n.MaxAckPending > 0 && n.MaxAckPending < most {
			d.Find(at+"."+in.Name+".nats.max_ack_pending", "is %d, below pool.max, %d: workers could never all be busy", n.MaxAckPending,
				most)
		}
	}
}

func (d *Document) checkTimes(at string, c *Consumer) {
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
		hold, longest := cmp.Or(n.MaxHold, natsbroker.DefaultMaxHold), c.Timeout+cmp.Or(c.StuckAfter, consumer.DefaultStuckAfter)
		if hold > 0 && hold < longest {
			d.Find(at+"."+in.Name+".nats.max_hold",
				"is %v, below timeout and stuck_after together, %v: the server would give the message to another meanwhile", hold, longest)
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
	for _, key := range []string{"routes", "no_route"} {
		if d.Has(at + "." + key) {
			d.Find(at+"."+key, "is set, and so is batch: a batch has all messages of the consumer, and one handler")
		}
	}
	if b.Handler == "" {
		d.Find(path+".handler", "is missing")
	}
}

// checkMatch: a route that no message can take is a mistake, where it is known which messages there are.
func (d *Document) checkMatch(path string, r Route, c *Consumer) {
	var reads, keys []string
	for _, in := range c.Reads() {
		var some []string
		if key, subjects := in.subjects(); key != "" {
			some, keys = subjects, append(keys, in.Name+"."+key+".subjects")
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
		d.Find(path+".match", "is %q, and no message of %s, %q, can match it: the route would never be taken", r.Match,
			strings.Join(keys, " and "), reads)
	}
}
