package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/rs/zerolog"
)

// A Target is what the server shows and controls: a *consumer.Consumer. Its methods are called by several goroutines at once and
// do not block.
type Target interface {
	Prober
	Controller
}

// A Prober knows how it is.
type Prober interface {
	// Health returns nil, or what is wrong that a restart would mend: see consumer.Consumer.Health. noProgress 0 skips a part of it.
	Health(noProgress time.Duration) error
	// Ready says whether it runs and has contact with its broker.
	Ready() bool
	// Stats are its figures.
	Stats() consumer.Stats
}

// A Limit of a consumer's handlers can be seen and changed while it runs, such as a *middleware.RateLimit. Its methods are called
// by several goroutines at once and do not block.
type Limit interface {
	// Kind is what it limits: its name in a configuration file, rate_limit for example.
	Kind() string
	// Settings are its settings by name, as they are.
	Settings() map[string]float64
	// Change sets those that are named, and leaves the others. The error names each that is wrong; then nothing is changed.
	Change(map[string]float64) error
}

// A SharedLimit is a Limit that may be one of several processes together, such as a *middleware.RateLimit.
type SharedLimit interface {
	// Share is which part of it this process has now, 0 to 1, where it is shared.
	Share() (part float64, shared bool)
}

// A Breaker of a consumer's handlers lets no call through while it is open: a *middleware.CircuitBreaker. Its methods are called
// by several goroutines at once and do not block.
type Breaker interface {
	// State is open, half-open or closed.
	State() string
	// OpenSince is when it opened, its tries since then passed over. The zero time: it is closed.
	OpenSince() time.Time
}

// A Controller can be changed while it runs.
type Controller interface {
	Pause() error
	Resume() error
	// SetLimits sets the least and the most workers, or says why not.
	SetLimits(minimum, maximum int) error
}

// A Page is the web page under /ui/: a *page.Page. It is an interface so that a program without one does not link its templates.
type Page interface {
	// Handler answers all below /ui/. It is asked for once, by New.
	Handler(PageSetup) http.Handler
	// Run keeps what the page shows, until ctx ends.
	Run(ctx context.Context)
}

// PageSetup is what the server has that a Page shows and changes.
type PageSetup struct {
	Token    string
	Targets  map[string]Target
	Limits   map[string]map[string]Limit
	Breakers map[string]map[string]Breaker
	Logger   zerolog.Logger
}
