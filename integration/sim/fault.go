package sim

import (
	"maps"
	"slices"
)

// What is a kind of fault.
type What string

// Done to a process by the engine, in any world.
const (
	// Join starts one more process.
	Join What = "join"
	// Stop ends a process's context, as the first SIGTERM does, and starts another one.
	Stop What = "stop"
	// Leave is Stop without another one, unless it was the last.
	Leave What = "leave"
	// Pause pauses a process for a while.
	Pause What = "pause"
	// Resize sets the most workers of a process to N.
	Resize What = "resize"
	// Sick has the runs of handlers fail for a while, in all processes.
	Sick What = "sick"
	// Limit sets the limits of calls of a process, where it has some, to N at once.
	Limit What = "limit"
	// Budget lets the sources of a process have N messages out at most, for a while.
	Budget What = "budget"
)

// Done to a process by its world.
const (
	// Kill ends a process as SIGKILL does: it sends nothing more, and nobody is told. Another one starts.
	Kill What = "kill"
	// Freeze stops a process for a while as SIGSTOP does: its connections and its handlers stand still.
	Freeze What = "freeze"
	// CutTo loses for a while what a process sends.
	CutTo What = "cut to"
	// CutFrom loses for a while what a process is answered: the broker has done what was asked.
	CutFrom What = "cut from"
	// CutBoth is both.
	CutBoth What = "cut both"
	// CutNode is CutBoth with node N of the broker alone.
	CutNode What = "cut node"
	// LoseAnswers breaks a connection of a process at each of the next N answers: what was asked for is done, and not heard of.
	LoseAnswers What = "lose answers"
	// Reset ends the connections of a process; it may make others at once.
	Reset What = "reset"
)

// Done to the broker.
const (
	// Down is the broker away for a while.
	Down What = "down"
	// Delay makes each exchange with the broker take N ms longer, for a while.
	Delay What = "delay"
	// FailSettles lets the next N settles, or commits, fail.
	FailSettles What = "fail settles"
	// FailPublishes lets the next N messages that are published fail.
	FailPublishes What = "fail publishes"
	// Again delivers a message again, whether it is out or settled or not: the one with the value mN.
	Again What = "again"
	// Forget lets the broker forget the settles of the last N ms.
	Forget What = "forget"
	// Revoke takes partition N from its owner, who is told before.
	Revoke What = "revoke"
	// Steal takes partition N from its owner, who learns it afterwards.
	Steal What = "steal"
	// Bounce takes partition N from its owner and gives it back in the same moment.
	Bounce What = "bounce"
	// Leader moves partition N, or its like, to another node of the broker.
	Leader What = "leader"
	// Restart stops the broker and starts it again with the same data.
	Restart What = "restart"
	// Grow adds N partitions to a topic.
	Grow What = "grow"
	// Trim drops what partition N has but for its newest messages, as retention does.
	Trim What = "trim"
	// Recreate deletes topic N and makes it again, empty.
	Recreate What = "recreate"
	// Make makes the topic N of dead letters and of what handlers emit. Before that there is none.
	Make What = "make"
	// Edit gives the durables other settings by the broker's tools, as a person does: those of N.
	Edit What = "edit"
)

// traits of a fault.
type traits struct {
	process bool // is done to one process
	engine  bool // no world is asked
	lasts   bool // has For
	counts  bool // has N
	armed   bool // is over when it was done N times, or after a lease
	weight  int  // how often it is planned
}

var whats = map[What]traits{
	Join:   {engine: true, weight: 3},
	Stop:   {engine: true, process: true, weight: 4},
	Leave:  {engine: true, process: true, weight: 2},
	Pause:  {engine: true, process: true, lasts: true, weight: 2},
	Resize: {engine: true, process: true, counts: true, weight: 2},
	Budget: {engine: true, process: true, lasts: true, counts: true, weight: 2},

	Kill:        {process: true, weight: 4},
	Freeze:      {process: true, lasts: true, weight: 3},
	CutTo:       {process: true, lasts: true, weight: 2},
	CutFrom:     {process: true, lasts: true, weight: 2},
	CutBoth:     {process: true, lasts: true, weight: 2},
	CutNode:     {process: true, lasts: true, counts: true, weight: 2},
	Reset:       {process: true, weight: 2},
	LoseAnswers: {process: true, counts: true, armed: true, weight: 2},

	Down:          {lasts: true, weight: 2},
	Delay:         {lasts: true, counts: true, weight: 2},
	FailSettles:   {counts: true, armed: true, weight: 2},
	FailPublishes: {counts: true, armed: true, weight: 2},
	Again:         {counts: true, weight: 2},
	Forget:        {counts: true, weight: 2},
	Revoke:        {counts: true, weight: 3},
	Steal:         {counts: true, weight: 3},
	Bounce:        {counts: true, weight: 2},
	Leader:        {counts: true, weight: 2},
	Restart:       {weight: 2},
	Grow:          {counts: true, weight: 1},
	Trim:          {counts: true, weight: 1},
	Recreate:      {counts: true, weight: 1},
	Edit:          {counts: true},                              // planned by itself
	Make:          {counts: true},                              // planned by itself
	Limit:         {engine: true, process: true, counts: true}, // planned by itself
	Sick:          {engine: true, lasts: true},                 // the same
}

// Whats lists all kinds of faults, by name.
func Whats() []What { return slices.Sorted(maps.Keys(whats)) }

// OfEngine says that no world is asked to do it.
func (w What) OfEngine() bool { return whats[w].engine }
