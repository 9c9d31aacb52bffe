package program

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

// ensureDurables gives durables of the embedded server the settings of the file, where they are there already and have others,
// and says so. The adapter changes no durable, for others may use it; this server is ours.
func (e *embeddedNATS) ensureDurables(ctx context.Context, f *config.File, log zerolog.Logger) error {
	js, end, err := e.jetStream()
	if err != nil {
		return err
	}
	defer end()
	for _, name := range slices.Sorted(maps.Keys(f.Consumers)) {
		for _, in := range f.Consumers[name].Reads() {
			n := in.NATS
			if n == nil || !n.Embedded() {
				continue
			}
			order := f.Consumers[name].Order
			changes, err := changeDurable(ctx, js, n, n.Adapter(embeddedURL(f.Embedded)).Durable(order != "" && order != "none"))
			if err != nil {
				return fmt.Errorf("durable %s of stream %s on the embedded NATS server: %w", n.Consumer, n.Stream, err)
			}
			if len(changes) > 0 {
				log.Info().Str("event", "durable_changed").Str("consumer", name).Str("stream", n.Stream).Str("durable",
					n.Consumer).Strs("changes", changes).
					Msg("the configuration has other settings than before")
			}
		}
	}
	return nil
}

// changeDurable changes a durable that is there, and says what.
func changeDurable(ctx context.Context, js jetstream.JetStream, n *config.NATS, file jetstream.ConsumerConfig) (changes []string,
	err error) {
	have, err := js.Consumer(ctx, n.Stream, n.Consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, nil // the adapter makes it
	}
	if err != nil {
		return nil, fmt.Errorf("looking for it: %w", err)
	}
	wanted, changes := durableChanges(have.CachedInfo().Config, file)
	if len(changes) == 0 {
		return nil, nil
	}
	// The first answer after the server's start shows the settings from before (2.15), in which the client then misses the filters.
	if _, err := js.UpdateConsumer(ctx, n.Stream, wanted); err != nil &&
		!errors.Is(err, jetstream.ErrConsumerMultipleFilterSubjectsNotSupported) {
		return nil, fmt.Errorf("changing it (%q): %w", changes, err)
	}
	info, err := have.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking whether it was changed: %w", err)
	}
	if _, left := durableChanges(info.Config, file); len(left) > 0 {
		return nil, fmt.Errorf("the server did not change %q", left)
	}
	return changes, nil
}

// durableChanges is a durable's configuration with the settings of the file that can be changed, and what that changes.
func durableChanges(have, file jetstream.ConsumerConfig) (wanted jetstream.ConsumerConfig, changes []string) {
	wanted = have
	if file.AckWait != have.AckWait {
		changes = append(changes, fmt.Sprintf("ack_wait: %v, was %v", file.AckWait, have.AckWait))
		wanted.AckWait = file.AckWait
	}
	if file.MaxAckPending != have.MaxAckPending {
		changes = append(changes, fmt.Sprintf("max_ack_pending: %d, was %d", file.MaxAckPending, have.MaxAckPending))
		wanted.MaxAckPending = file.MaxAckPending
	}
	if before, after := subjectsOf(have), subjectsOf(file); !slices.Equal(before, after) {
		changes = append(changes, fmt.Sprintf("subjects: %q, was %q", after, before))
		wanted.FilterSubject, wanted.FilterSubjects = file.FilterSubject, file.FilterSubjects
	}
	if file.PriorityPolicy != have.PriorityPolicy || !slices.Equal(file.PriorityGroups, have.PriorityGroups) {
		changes = append(changes, fmt.Sprintf("priority_groups: %q, was %q", file.PriorityGroups, have.PriorityGroups))
	}
	if file.PinnedTTL != have.PinnedTTL {
		changes = append(changes, fmt.Sprintf("priority_timeout: %v, was %v", file.PinnedTTL, have.PinnedTTL))
	}
	wanted.PriorityPolicy, wanted.PriorityGroups, wanted.PinnedTTL = file.PriorityPolicy, file.PriorityGroups, file.PinnedTTL
	return wanted, changes
}

func subjectsOf(c jetstream.ConsumerConfig) []string {
	if c.FilterSubject != "" {
		return []string{c.FilterSubject}
	}
	return slices.Sorted(slices.Values(c.FilterSubjects))
}
