package redisbroker

import (
	"context"
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
// A server that answers and refuses for now (a replica, one that loads or cannot save) is as good as away, and is told of so;
// what the caller deals with is contact.
func (l *link) run(ctx context.Context, script *redis.Script, stream string, args ...any) (cmd *redis.Cmd, asked time.Time) {
	limited, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	asked = time.Now()
	cmd = script.Run(limited, l.rdb, []string{stream}, append([]any{l.group, l.me}, args...)...)
	switch err := cmd.Err(); {
	case err == nil, isGone(err), isFinal(err):
		l.events.Found(asked)
	case ctx.Err() == nil: // else it was given up here
		l.events.Lost(err)
	}
	return cmd, asked
}

// never is for kit.Retry: another try may always help.
func never(error) bool { return false }
