package kafkabroker

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A contact takes note of exchanges with brokers while life lasts.
type contact struct {
	life       context.Context
	events     *kit.EventQueue
	operations *kit.Operations
	failing    *broken
}

// A line is a kind of exchanges without which there is no progress, however well all others are answered. While one fails, no
// answer to something else is an Up: with a coordinator away, beside leaders that answer each fetch, Down and Up would be told in
// turns. Each broker that partitions are asked of is one, and each partition.
type line any

// A service is a line that no partition has of its own: all but the last are to the group's coordinator.
type service int

const (
	toGroup   service = iota // our place in the group
	toCommit                 // what is finished, and with transactions their outputs
	toOffsets                // what is committed, where partitions begin
	toTopics                 // how topics are laid out
)

// A toBroker is the line to a broker that partitions are asked of.
type toBroker int32

// A toLog is the line to a partition, of which its broker may refuse to give anything, and answer all the same.
type toLog partitionID

// A toRange is the line to a partition whose position is out of range: its leader is asked which range that is, and gives
// nothing before, though it answers.
type toRange partitionID

// A toEnd is the line to the end of a partition's log, which is asked for where nothing is fetched of it, and may be refused as
// well.
type toEnd partitionID

// Broken are the lines on which the last exchange failed. Safe for concurrent use.
type broken struct {
	mu    sync.Mutex
	lines map[line]bool
}

func (f *broken) set(l line, fails bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fails {
		f.lines[l] = true
	} else {
		delete(f.lines, l)
	}
}

func (f *broken) none() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.lines) == 0
}

// keep forgets the lines to all other brokers and partitions.
func (f *broken) keep(asked map[line]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.lines, func(l line, _ bool) bool {
		_, isService := l.(service)
		return !isService && !asked[l]
	})
}

// keepEnds forgets the lines to the ends of all other partitions.
func (f *broken) keepEnds(asked map[partitionID]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.lines, func(l line, _ bool) bool {
		end, isEnd := l.(toEnd)
		return isEnd && !asked[partitionID(end)]
	})
}

// exchange takes note of one that began at a time.
func (x contact) exchange(began time.Time, err error) {
	switch {
	case x.life.Err() != nil:
	case errors.Is(err, context.Canceled): // an Open that is given up: who ended it knows
	case err != nil:
		x.events.Lost(err)
	case x.failing.none():
		x.events.Found(began)
	}
}

// on is exchange of one on a line.
func (x contact) on(l line, began time.Time, err error) {
	x.failing.set(l, err != nil)
	x.exchange(began, err)
}

// rests says that there is nothing to exchange on a line, so that nothing waits for it.
func (x contact) rests(l line) { x.failing.set(l, false) }

// asks says which partitions are asked for, and of which brokers. Nothing waits for the others.
func (x contact) asks(lines map[line]bool) { x.failing.keep(lines) }

// asksEnds is asks of those whose ends are asked for.
func (x contact) asksEnds(parts map[partitionID]bool) { x.failing.keepEnds(parts) }

// operated tells of a request that began at a time, unless we cut it off.
func (x contact) operated(kind broker.OperationKind, began time.Time, err error) {
	if x.life.Err() == nil {
		x.operations.Tell(kind, began, err)
	}
}

// failed takes note of one that did not work.
func (x contact) failed(err error) { x.exchange(time.Time{}, err) }
