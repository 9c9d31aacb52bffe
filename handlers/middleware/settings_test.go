package middleware_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
)

// changeable is what all of them can.
type changeable interface {
	Kind() string
	Settings() map[string]float64
	Change(map[string]float64) error
}

func limits(t *testing.T) map[string]changeable {
	t.Helper()
	rate, err := middleware.NewRateLimit(5, 2)
	if err != nil {
		t.Fatal(err)
	}
	key, err := middleware.NewKeyRateLimit(5, 2)
	if err != nil {
		t.Fatal(err)
	}
	concurrency, err := middleware.NewConcurrencyLimit(3)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]changeable{"rate_limit": rate, "key_rate_limit": key, "concurrency_limit": concurrency}
}

// What is named is changed, what is wrong is all named, and then nothing is changed.
func TestSettings(t *testing.T) {
	all := limits(t)
	for kind, l := range all {
		if l.Kind() != kind {
			t.Errorf("%s calls itself %s", kind, l.Kind())
		}
	}
	for _, c := range []struct {
		kind string
		to   map[string]float64
		want map[string]float64
		err  []string
	}{
		{"rate_limit", map[string]float64{"per_second": 0.5}, map[string]float64{"per_second": 0.5, "burst": 2}, nil},
		{"rate_limit", map[string]float64{"burst": 7}, map[string]float64{"per_second": 0.5, "burst": 7}, nil},
		{"rate_limit", map[string]float64{"burst": 0, "per_second": 0, "limit": 1}, map[string]float64{"per_second": 0.5, "burst": 7},
			[]string{"burst: is 0, want a whole number", "per_second: is 0, want more than 0",
				"limit: is no setting of a rate_limit, want some of burst, per_second"}},
		{"rate_limit", map[string]float64{"per_second": math.Inf(1)}, map[string]float64{"per_second": 0.5, "burst": 7},
			[]string{"per_second: is +Inf"}},
		{"rate_limit", map[string]float64{"per_second": math.NaN()}, map[string]float64{"per_second": 0.5, "burst": 7},
			[]string{"per_second: is NaN"}},
		{"rate_limit", nil, map[string]float64{"per_second": 0.5, "burst": 7},
			[]string{"nothing is set, want some of burst, per_second"}},
		{"key_rate_limit", map[string]float64{"per_second": 9, "burst": 4}, map[string]float64{"per_second": 9, "burst": 4}, nil},
		{"key_rate_limit", map[string]float64{"per_second": 8, "burst": 1.5}, map[string]float64{"per_second": 9, "burst": 4},
			[]string{"burst: is 1.5, want a whole number"}},
		{"concurrency_limit", map[string]float64{"limit": 12}, map[string]float64{"limit": 12}, nil},
		{"concurrency_limit", map[string]float64{"limit": -1}, map[string]float64{"limit": 12},
			[]string{"limit: is -1, want a whole number"}},
		{"concurrency_limit", map[string]float64{"limit": 1e300}, map[string]float64{"limit": 12}, []string{"limit: is 1e+300"}},
	} {
		l := all[c.kind]
		err := l.Change(c.to)
		if (err != nil) != (c.err != nil) || !maps.Equal(l.Settings(), c.want) {
			t.Errorf("%s %v: error %v, settings %v, want %v", c.kind, c.to, err, l.Settings(), c.want)
		}
		for _, want := range c.err {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %v: %q is not in %v", c.kind, c.to, want, err)
			}
		}
	}
}

func TestSettingsOfAnUnboundedRate(t *testing.T) {
	l, err := middleware.NewRateLimit(math.Inf(1), 1)
	if err != nil {
		t.Fatal(err)
	}
	if s := l.Settings(); !math.IsInf(s["per_second"], 1) {
		t.Errorf("settings %v", s)
	}
	if err := l.Change(map[string]float64{"burst": 3}); err == nil {
		s := l.Settings()
		if !math.IsInf(s["per_second"], 1) || s["burst"] != 3 {
			t.Errorf("settings %v", s)
		}
	} else {
		t.Error(err)
	}
}

// Two who change different settings at once both have their way.
func TestSettingsAtOnce(t *testing.T) {
	for kind, l := range limits(t) {
		if kind == "concurrency_limit" {
			continue
		}
		for i := range 200 {
			var wg sync.WaitGroup
			wg.Go(func() { _ = l.Change(map[string]float64{"per_second": float64(i + 1)}) })
			wg.Go(func() { _ = l.Change(map[string]float64{"burst": float64(i + 1)}) })
			wg.Wait()
			if s := l.Settings(); s["per_second"] != float64(i+1) || s["burst"] != float64(i+1) {
				t.Fatalf("%s: %v after %d", kind, s, i+1)
			}
		}
	}
}

// A change reaches the message that waits, when it looks again.
func TestChangeReachesWaitingMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := middleware.NewRateLimit(0.001, 1)
		if err != nil {
			t.Fatal(err)
		}
		h := l.Middleware(func(context.Context, *consumer.Message) error { return nil })
		begin := time.Now()
		done := make(chan error)
		go func() { _, err := pass(t.Context(), h, 1), pass(t.Context(), h, 2); done <- err }()
		time.Sleep(time.Second)
		if err := l.Change(map[string]float64{"per_second": 10}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || time.Since(begin) > 2*time.Second {
			t.Errorf("error %v after %v", err, time.Since(begin))
		}
	})
}

func ExampleConcurrencyLimit_Change() {
	l, err := middleware.NewConcurrencyLimit(8)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(l.Kind(), l.Settings())
	fmt.Println(l.Change(map[string]float64{"limit": 32}), l.Settings())
	fmt.Println(l.Change(map[string]float64{"limit": 0}))
	// Output:
	// concurrency_limit map[limit:8]
	// <nil> map[limit:32]
	// limit: is 0, want a whole number, 1 to 2147483647
}
