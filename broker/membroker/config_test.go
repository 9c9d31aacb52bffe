package membroker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

func TestConfigNamesEachMistake(t *testing.T) {
	c := Config{
		Topics: map[string]int{"": 1, "orders": 0}, Partitions: -1, Lease: -1, NativeDelay: time.Second, Attempts: 7,
		MaxDeliveries: -1, AtMostOnce: true, MaxMessageBytes: -1,
	}
	text := fmt.Sprint(c.validate())
	for _, want := range []string{"empty name", `Topics["orders"] is 0`, "Partitions is -1", "Lease is -1ns", "NativeDelay is 1s",
		"Attempts is 7",
		"MaxDeliveries is -1", "AtMostOnce", "MaxMessageBytes is -1"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not named in:\n%s", want, text)
		}
	}
	defer func() {
		if r := recover(); r == nil || fmt.Sprint(r) != text {
			t.Errorf("New panicked with %v, want all findings", r)
		}
	}()
	New(c)
}

func TestConfigRefusesAtMostWithoutLeases(t *testing.T) {
	if err := (Config{Attempts: broker.AtMost}).validate(); err == nil {
		t.Error("AtMost without Leased is accepted")
	}
	if err := (Config{MaxDeliveries: 3}).validate(); err == nil {
		t.Error("MaxDeliveries without Leased is accepted")
	}
}

func TestTraits(t *testing.T) {
	for name, tc := range map[string]struct {
		c    Config
		want broker.Traits
	}{
		"partitioned":  {Config{}, broker.Traits{Ordered: true, Together: true}},
		"leased":       {Config{Leased: true}, broker.Traits{Attempts: broker.AtMost, NativeDelay: 24 * time.Hour}},
		"no delay":     {Config{Leased: true, NativeDelay: -1}, broker.Traits{Attempts: broker.AtMost}},
		"exact":        {Config{Attempts: broker.Exact}, broker.Traits{Ordered: true, Attempts: broker.Exact, Together: true}},
		"at most once": {Config{Leased: true, AtMostOnce: true}, broker.Traits{Attempts: broker.AtMost, AtMostOnce: true}},
		"deliveries": {Config{Leased: true, MaxDeliveries: 3},
			broker.Traits{Attempts: broker.AtMost, NativeDelay: 24 * time.Hour, MaxDeliveries: 3}},
	} {
		if got := tc.c.withDefaults().traits(); got != tc.want {
			t.Errorf("%s: traits are %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestOpenNamesEachMistake(t *testing.T) {
	s := New(Config{}).Source(SourceConfig{Prefetch: -1, Window: -1, CommitInterval: -1, RevokeWait: -1})
	_, err := s.Open(context.Background(), broker.Options{})
	for _, want := range []string{"Topics is empty", "Prefetch is -1", "Window is -1", "CommitInterval is -1ns",
		"RevokeWait is -1ns",
		"Options.Budget is {Messages:0 Bytes:0}", "Observe is nil"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q is not named in:\n%v", want, err)
		}
	}
	if err := s.Close(context.Background()); err != nil {
		t.Errorf("Close after a failed Open: %v", err)
	}
}

func TestStrictRefusesUnknownTopics(t *testing.T) {
	b := New(Config{Strict: true, Topics: map[string]int{"orders": 1}})
	if err := b.Produce(broker.Outgoing{Topic: "order"}); !errors.Is(err, broker.ErrRefused) || !errors.Is(err, broker.ErrNoTopic) ||
		!strings.Contains(err.Error(), `"order"`) {
		t.Errorf("Produce: %v, want ErrRefused and ErrNoTopic that names the topic", err)
	}
	s := b.Source(SourceConfig{Topics: []string{"order"}})
	o := broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}, Observe: func(broker.Event) {}}
	if _, err := s.Open(context.Background(), o); err == nil || !strings.Contains(err.Error(), `"order"`) {
		t.Errorf("Open: %v, want an error that names the topic", err)
	}
}

// TestCreate: a topic that was missing takes messages once it is made, and made again it keeps them.
func TestCreate(t *testing.T) {
	b := New(Config{Strict: true})
	if err := b.Produce(broker.Outgoing{Topic: "late"}); !errors.Is(err, broker.ErrNoTopic) {
		t.Fatalf("Produce: %v, want ErrNoTopic", err)
	}
	for range 2 {
		if err := b.Create("late", 3); err != nil {
			t.Fatal(err)
		}
		if err := b.ProduceTo(2, broker.Outgoing{Topic: "late"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.Messages("late")); n != 2 {
		t.Errorf("%d messages are there, want 2", n)
	}
	if err := b.Create("", 1); err == nil {
		t.Error("a topic without a name was made")
	}
}
