package admin

import (
	"cmp"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Config says what is served, and where.
type Config struct {
	// Listen is the address, host:port. Health and metrics may be opened to others ("0.0.0.0:8080" in a container, for its probes);
	// the controls stay behind the token. Port 0 takes a free one: see Server.Addr. Defaults to "127.0.0.1:8080".
	Listen string
	// Token is what the controls ask for. At least 16 bytes. Defaults to none: they are refused.
	Token string
	// Targets are the consumers, by name. Required.
	Targets map[string]Target
	// Limits of their handlers, by the consumer's name and their own, which has letters, digits, '-', '_' and '.'. Defaults to none.
	Limits map[string]map[string]Limit
	// Breakers around their handlers, by the consumer's name and their own, are shown. Defaults to none.
	Breakers map[string]map[string]Breaker
	// HideKeys keeps keys of messages from being shown in what is in hand, also to those who have the token: they may be personal
	// data. The text of errors there, which may have of a payload, is then for those only. Defaults to false: keys are shown to
	// those, and errors to all.
	HideKeys bool
	// Page is the web page under /ui/: a *page.Page, of package page below this one. Defaults to none.
	Page Page
	// Gatherer has the metrics. Defaults to none: /metrics is 404.
	Gatherer prometheus.Gatherer
	// NoProgress is for how long nothing may move in a consumer that has work, before /livez fails; handlers have more: see
	// consumer.Consumer.Health. Without a consumer's Timeout, choose it above a tenth of its longest handler. Negative: for ever.
	// Defaults to 1 min.
	NoProgress time.Duration
	// MaxConnections at a time. A further one takes the place of the one that is missed least, an idle one first: so a probe is
	// always answered. Defaults to 256.
	MaxConnections int
	// Logger gets controls, panics and what net/http complains of. Defaults to none.
	Logger zerolog.Logger
}

var limitName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// DefaultListen and DefaultNoProgress are defaults of Config, minToken is the shortest token.
const (
	DefaultListen     = "127.0.0.1:8080"
	DefaultNoProgress = time.Minute
	minToken          = 16
)

func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, DefaultListen)
	c.NoProgress = max(0, cmp.Or(c.NoProgress, DefaultNoProgress))
	c.MaxConnections = cmp.Or(c.MaxConnections, 256)
	return c
}

// validate reports all findings at once, each with the field's name. It never shows the token.
func (c Config) validate() error {
	f := &broker.Findings{Of: "admin config"}
	_, port, err := net.SplitHostPort(c.Listen)
	f.Check(err == nil, "Listen", "is %q, want host:port, as in 127.0.0.1:8080", c.Listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
		f.Check(err == nil, "Listen", "is %q, its port must be 0..65535", c.Listen)
	}
	f.Check(c.Token == "" || len(c.Token) >= minToken, "Token", "has %d bytes, want at least %d", len(c.Token), minToken)
	f.Check(len(c.Targets) > 0, "Targets", "is empty")
	for name, t := range c.Targets {
		f.Check(name != "" && t != nil, broker.Field(fmt.Sprintf("Targets[%q]", name)), "has no name or is nil")
	}
	for name, limits := range c.Limits {
		f.Check(c.Targets[name] != nil, broker.Field(fmt.Sprintf("Limits[%q]", name)), "is of no target")
		for limit, l := range limits {
			f.Check(limitName.MatchString(limit) && l != nil, broker.Field(fmt.Sprintf("Limits[%q][%q]", name, limit)),
				"has no name of letters, digits, '-', '_' and '.', or is nil")
		}
	}
	for name, breakers := range c.Breakers {
		f.Check(c.Targets[name] != nil, broker.Field(fmt.Sprintf("Breakers[%q]", name)), "is of no target")
		for breaker, b := range breakers {
			f.Check(b != nil, broker.Field(fmt.Sprintf("Breakers[%q][%q]", name, breaker)), "is nil")
		}
	}
	f.Check(c.MaxConnections > 0, "MaxConnections", "is %d, want at least 1", c.MaxConnections)
	return f.Err()
}
