package redisbroker

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/longshoremq/longshore/broker/kit"
)

// A link is how a source reaches the server, under its name in the group.
type link struct {
	rdb       *redis.Client
	group, me string
	timeout   time.Duration
	events    *kit.EventQueue
}

// run runs a script on a stream, for no longer than the timeout, and notes whether there is contact. Leases count from asked on.
func (l *link) run(ctx context.Context, script *redis.Script, stream string, args ...any) (cmd *redis.Cmd, asked time.Time) {
	limited, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	asked = time.Now()
	cmd = script.Run(limited, l.rdb, []string{stream}, append([]any{l.group, l.me}, args...)...)
	switch answer := redis.Error(nil); {
	case cmd.Err() == nil, errors.As(cmd.Err(), &answer): // a refusal is contact, too
		l.events.Found(asked)
	case ctx.Err() == nil: // else it was given up here
		l.events.Lost(cmd.Err())
	}
	return cmd, asked
}

// never is for kit.Retry: another try may always help.
func never(error) bool { return false }
