//go:build unix

package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/longshoremq/longshore/integration/kafkad"
)

// onThree has two consumers and a load on three brokers of its own, with a replica of everything on each. The session outlasts
// what is done to them, so nothing may be handled twice: commits are on two brokers at least, and no consumer loses its memory.
func onThree(t *testing.T, k kind) *field {
	t.Helper()
	needsKafka(t)
	f := k.newField(t, newKafkaSystem(t, kafkad.Start(t, kafkad.Config{Nodes: 3})))
	f.calm(t)
	f.startConsumers(t, 2)
	f.balanced(t)
	f.load = f.startLoad(t, faultRate, 0)
	f.moves(t, faultRate)
	return f
}

// leadersMove moves the leaders of all partitions again and again, stops a broker in good order and starts it again, and kills
// another one for good.
func leadersMove(t *testing.T, k kind) string {
	f := onThree(t, k)
	s := f.onKafka()
	moves := lengths(3, 9)
	for range moves {
		if err := s.cluster.MoveLeaders(t.Context(), s.topic); err != nil {
			t.Fatal(err)
		}
		f.moves(t, faultRate)
	}
	if err := s.cluster.Stop(0); err != nil {
		t.Fatal(err)
	}
	stopped := f.moves(t, faultRate)
	if err := s.cluster.Restart(0); err != nil {
		t.Fatal(err)
	}
	f.moves(t, faultRate)
	s.cluster.Kill(1)
	killed := f.moves(t, faultRate)
	f.moves(t, faultRate)
	a := f.finish(t)
	a.noDuplicates(t)
	return fmt.Sprintf("%d moves of all leaders; a second's messages took %v after the stop and %v after the SIGKILL of a broker; "+
		"%v",
		moves, stopped.Round(time.Millisecond), killed.Round(time.Millisecond), a)
}

// coordinatorMoves moves the partitions in which the coordinators are, kills the broker that coordinates the group, and stops the
// next one.
func coordinatorMoves(t *testing.T, k kind) string {
	f := onThree(t, k)
	s := f.onKafka()
	coordinator := func() int {
		node, err := s.cluster.Coordinator(t.Context(), s.group)
		if err != nil {
			t.Fatal(err)
		}
		return node
	}
	moves := lengths(3, 9)
	for range moves {
		before := coordinator()
		if err := s.cluster.MoveLeaders(t.Context(), offsetsTopic); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another broker coordinates", func() bool { return coordinator() != before })
		f.moves(t, faultRate)
	}
	first := coordinator()
	s.cluster.Kill(first)
	killed := f.moves(t, faultRate)
	eventually(t, "another broker coordinates", func() bool { return coordinator() != first })
	if err := s.cluster.Restart(first); err != nil {
		t.Fatal(err)
	}
	if err := s.cluster.Stop(coordinator()); err != nil {
		t.Fatal(err)
	}
	stopped := f.moves(t, faultRate)
	f.moves(t, faultRate)
	a := f.finish(t)
	a.noDuplicates(t)
	return fmt.Sprintf("%d moves; a second's messages took %v after the SIGKILL of the coordinator and %v after the stop of the "+
		"next; %v",
		moves, killed.Round(time.Millisecond), stopped.Round(time.Millisecond), a)
}
