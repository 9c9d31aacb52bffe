package config

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/internal/natssubject"
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
			cc := consumerCheck{place: place{d.report, at}, Consumer: c, secrets: d.secrets, kinds: kinds(d.adapters)}
			cc.check()
		}
	}
	d.checkValues("", reflect.ValueOf(f).Elem())
	d.checkEmbedded()
	d.checkDurables()
	d.checkStreams()
	d.checkGroups()
	d.checkCircles()
}

func (d *Document) checkAdmin(a *Admin) {
	if a.Listen != "" {
		host, port, err := net.SplitHostPort(a.Listen)
		if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || !isHost(host) {
			d.Find("admin.listen", "is %q, want host:port, as in 127.0.0.1:8080", a.Listen)
		}
	}
	path, token := "admin.token", a.Token.Reveal()
	if a.TokenFile != "" {
		path += "_file"
	}
	switch n := len(token); {
	case n > 0 && n < minToken:
		d.Find(path, "the token has %d bytes, want at least %d", n, minToken)
	case strings.TrimSpace(token) != token, strings.ContainsFunc(token, unicode.IsControl), strings.HasPrefix(token, "\ufeff"):
		d.Find(path, "the token has a blank at an end, a line break or another character that no request can bring")
	}
}

var (
	hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?$`)
	numbers  = regexp.MustCompile(`^[0-9.]+$`)
)

// isHost says whether there can be such a host: a name, an address, or none, which is all of this machine's. Numbers with dots
// that are no address are a slip, and would be looked up as a name.
func isHost(host string) bool {
	_, err := netip.ParseAddr(host)
	return host == "" || err == nil || hostName.MatchString(host) && !numbers.MatchString(host)
}

// A consumerCheck finds what contradicts itself in the section of one consumer.
type consumerCheck struct {
	place
	*Consumer
	secrets *secrets
	kinds   []string // the names that a source may have
}

func (cc *consumerCheck) check() {
	cc.checkOrder()
	cc.checkPool()
	if j := cc.Retry.Backoff.Jitter; j < 0 || j > 1 { // in Go what is negative means none
		cc.find(".retry.backoff.jitter", "is %v, want 0 to 1", j)
	}
	cc.checkTimes()
	cc.checkRoutes()
	cc.checkSource()
	cc.checkRetryTopics()
	if cc.DeadLetter != nil {
		cc.checkDeadLetter()
	} else if !cc.covered[cc.at+".dead_letter"] { // else nobody knows
		cc.checkNoDeadLetter()
	}
	cc.checkEngine()
}

func (cc *consumerCheck) checkSource() {
	for _, in := range cc.Reads() {
		key := "." + in.Name
		kinds := slices.DeleteFunc(slices.Clone(cc.kinds), func(kind string) bool { return !cc.has(key + "." + kind) })
		switch {
		case len(kinds) > 1:
			cc.find(key, "has %s: a source is one of them", kindsText(kinds))
		case len(kinds) == 1, cc.has(".sources") && in.Name == "source": // the second is empty
		case in.Name == "source":
			cc.find(key, "is missing: want source: {%s: …}", strings.Join(cc.kinds, ": …} or source: {"))
		case len(cc.kinds) == len(ownKinds):
			cc.find(key, "has none of nats, nats_core and kafka")
		default:
			cc.find(key, "has none of %s", kindsText(cc.kinds))
		}
		if in.NATS != nil {
			cc.section(key + ".nats").checkNATS(in.NATS)
		}
		if in.NATSCore != nil {
			cc.section(key + ".nats_core").checkNATSCore(in.NATSCore)
		}
		if in.Kafka != nil {
			cc.section(key + ".kafka").checkKafka(in.Kafka)
			if in.Kafka.CrashLimit > 0 && cc.DeadLetter == nil {
				cc.find(key+".kafka.crash_limit", "is set, and there is no dead_letter: what kills its process has no place to go")
			}
		}
	}
	cc.checkSources()
	if cc.Priority != nil {
		cc.checkPriority()
	}
}

// A sectionCheck finds what is wrong with the section of one source.
type sectionCheck struct {
	place
	secrets *secrets
}

func (cc *consumerCheck) section(key string) sectionCheck {
	return sectionCheck{place{cc.report, cc.at + key}, cc.secrets}
}

// checkPool: all workers can be busy, and where their number is fixed nothing else is said of it.
func (cc *consumerCheck) checkPool() {
	most := cc.MostWorkers()
	if cc.Pool.Policy == "fixed" && cc.Pool.Min > 0 && cc.Pool.Min < most {
		cc.warn(cc.at+".pool.min", "is %d, and policy is fixed: there are always max workers, %d", cc.Pool.Min, most)
	}
	for _, in := range cc.Reads() {
		key := "." + in.Name + ".nats.max_ack_pending"
		switch n := in.NATS; {
		case n == nil:
		case n.MaxAckPending > 0 && n.MaxAckPending < most:
			cc.find(key, "is %d, below pool.max, %d: workers could never all be busy", n.MaxAckPending, most)
		case n.MaxAckPending == 0 && natsbroker.DefaultMaxAckPending < most:
			cc.find(".pool.max", "is %d, above %s, %d unless it is set: workers could never all be busy", most, key[1:],
				natsbroker.DefaultMaxAckPending)
		}
	}
}

func (cc *consumerCheck) checkTimes() {
	if cc.Timeout == 0 {
		for _, needs := range []string{".stuck_after", ".max_stuck"} {
			if cc.has(needs) {
				cc.find(needs, "is set and timeout is not: a handler without a timeout is never stuck")
			}
		}
	}
	for _, in := range cc.Reads() {
		n := in.NATS
		if n == nil || cc.Timeout <= 0 {
			continue
		}
		hold, longest := cmp.Or(n.MaxHold, natsbroker.DefaultMaxHold), cc.Timeout+cmp.Or(cc.StuckAfter, consumer.DefaultStuckAfter)
		if hold > 0 && hold < longest {
			cc.find("."+in.Name+".nats.max_hold",
				"is %v, below timeout and stuck_after together, %v: the server would give the message to another meanwhile", hold, longest)
		}
	}
}

func (cc *consumerCheck) checkRoutes() {
	if cc.Batch != nil {
		cc.checkBatch()
	} else if len(cc.Routes) == 0 {
		cc.find(".routes", "is missing or empty: nothing would be handled")
	}
	for i, r := range cc.Routes {
		key := ".routes[" + strconv.Itoa(i) + "]"
		if r.Handler == "" {
			cc.find(key+".handler", "is missing")
		}
		cc.checkMatch(key, r)
	}
	for i, m := range cc.Middleware {
		if m.Use == "" {
			cc.find(".middleware["+strconv.Itoa(i)+"].use", "is missing")
		}
	}
}

// checkBatch: what is for single messages is not asked for beside it.
func (cc *consumerCheck) checkBatch() {
	for _, key := range []string{"routes", "no_route"} {
		if cc.has("." + key) {
			cc.find("."+key, "is set, and so is batch: a batch has all messages of the consumer, and one handler")
		}
	}
	if cc.Batch.Handler == "" {
		cc.find(".batch.handler", "is missing")
	}
}

// checkMatch: a route that no message can take is a mistake, where it is known which messages there are.
func (cc *consumerCheck) checkMatch(key string, r Route) {
	var reads, keys []string
	for _, in := range cc.Reads() {
		var some []string
		if section, subjects := in.subjects(); section != "" {
			some, keys = subjects, append(keys, in.Name+"."+section+".subjects")
		} else if k := in.Kafka; k != nil {
			some, keys = k.Topics, append(keys, in.Name+".kafka.topics")
			cc.checkPublish(key, in.Name, r, k)
		}
		if len(some) == 0 {
			return // nobody knows what it reads
		}
		reads = append(reads, some...)
	}
	leads := func(s string) bool { return natssubject.Overlap(s, r.Match) }
	if len(reads) > 0 && r.Match != "" && !slices.ContainsFunc(reads, leads) {
		cc.find(key+".match", "is %q, and no message of %s, %q, can match it: the route would never be taken", r.Match,
			strings.Join(keys, " and "), reads)
	}
}
