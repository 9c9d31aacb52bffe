package redisbroker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A Config is what a Source is made of.
type Config struct {
	// Redis says how to connect. Required. Retries and timeouts in it are not used: the adapter has its own.
	Redis *redis.Options
	// Group is the consumer group. It is made where there is none, and begins with the stream's first entry. Required.
	Group string
	// Topics are the streams, at least one. Those that are not there are made.
	Topics []string
	// Lease is after how long a silence other processes take a message. It has to be the same in all processes of the group. A
	// longer one forgives longer stops of a process; a shorter one brings the messages of a dead one back sooner. At least 50 ms.
	// Defaults to 30 s.
	Lease time.Duration
}

func (c Config) withDefaults() Config {
	if c.Lease == 0 {
		c.Lease = 30 * time.Second
	}
	return c
}

// validate reports all that is wrong.
func (c Config) validate() error {
	var errs []error
	for _, finding := range []struct {
		wrong bool
		text  string
	}{
		{c.Redis == nil, "Redis is nil"},
		{c.Group == "", "Group is empty"},
		{len(c.Topics) == 0 || slices.Contains(c.Topics, ""), "Topics is empty, or has an empty name in it"},
		{c.Lease < 50*time.Millisecond, "Lease is " + c.Lease.String() + ", want at least 50 ms"},
	} {
		if finding.wrong {
			errs = append(errs, errors.New("redisbroker: Config."+finding.text))
		}
	}
	return errors.Join(errs...)
}

const (
	// poll is how often a source without messages asks for them, and retryPause is between two tries.
	poll, retryPause = 20 * time.Millisecond, 20 * time.Millisecond
	// longest is how long an answer may take; for a source it is a third of the lease at most.
	longest = 3 * time.Second
)

// client makes one that tries nothing twice by itself: a pull that is sent again would leave the first answer's messages to their
// leases.
func client(o *redis.Options, timeout time.Duration) *redis.Client {
	own := *o
	own.MaxRetries, own.DialerRetries = -1, 1
	own.ContextTimeoutEnabled = true
	own.DialTimeout, own.ReadTimeout, own.WriteTimeout = timeout, timeout, timeout
	own.Protocol, own.DisableIdentity = 2, true
	own.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(&own)
}

// consumerName is no other process's.
func consumerName() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s-%d-%08x", host, os.Getpid(), rand.Uint32())
}

// isGone: the stream or its group is not there.
func isGone(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "NOGROUP") || strings.Contains(err.Error(), "requires the key to exist") ||
		strings.Contains(err.Error(), "no such key"))
}

// isFinal: it stays so until a person acts.
func isFinal(err error) bool {
	for _, code := range []string{"WRONGTYPE", "NOAUTH", "WRONGPASS", "NOPERM", "can't run this command", "unknown command"} {
		if err != nil && strings.Contains(err.Error(), code) {
			return true
		}
	}
	return false
}
