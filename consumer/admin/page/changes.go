package page

import (
	"net/http"

	"github.com/rs/zerolog"
)

// changes are what somebody changed here, as the log and the page's own list of events have it.
type changes struct {
	log    zerolog.Logger
	events *eventLog
}

// tell tells of one.
func (c *changes) tell(r *http.Request, w *watched, fields map[string]any) {
	for _, log := range []zerolog.Logger{c.log, zerolog.New(c.events)} {
		log.Info().Str("event", "admin_control").Str("consumer", w.name).Str("path", r.URL.Path).Str("remote",
			r.RemoteAddr).Fields(fields).Send()
	}
}
