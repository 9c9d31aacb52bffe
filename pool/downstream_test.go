package pool_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

const ms = time.Millisecond

// service is a handler's time, given how many run at once, the time since the start, and a random number of the message's own.
type service = func(busy int, at time.Duration, r *rand.Rand) time.Duration

func constant(d time.Duration) service {
	return func(int, time.Duration, *rand.Rand) time.Duration { return d }
}

func exponential(d time.Duration) service {
	return func(_ int, _ time.Duration, r *rand.Rand) time.Duration {
		return time.Duration(float64(d) * r.ExpFloat64())
	}
}

func lognormal(d time.Duration, cv float64) service {
	s2 := math.Log(1 + cv*cv)
	return func(_ int, _ time.Duration, r *rand.Rand) time.Duration {
		return time.Duration(float64(d) * math.Exp(math.Sqrt(s2)*r.NormFloat64()-s2/2))
	}
}

// mixed takes rare with probability p, else often.
func mixed(p float64, rare, often time.Duration) service {
	return func(_ int, _ time.Duration, r *rand.Rand) time.Duration {
		if r.Float64() < p {
			return rare
		}
		return often
	}
}

// shared is a downstream that serves k at full speed; beyond that all are slower by (busy/k)^exp: with 1 the throughput stays,
// with more it collapses.
func shared(d time.Duration, k int, exp float64) service {
	return crowded(func(_ int, _ time.Duration, r *rand.Rand) time.Duration {
		return time.Duration(float64(d) * (0.9 + 0.2*r.Float64()))
	}, k, exp)
}

// noisy is shared with times that scatter.
func noisy(d time.Duration, k int, exp, cv float64) service { return crowded(lognormal(d, cv), k, exp) }

func crowded(alone service, k int, exp float64) service {
	return func(busy int, at time.Duration, r *rand.Rand) time.Duration {
		return time.Duration(float64(alone(busy, at, r)) * math.Max(1, math.Pow(float64(busy)/float64(k), exp)))
	}
}

// cliff: beyond k at once each new call takes long, as with a connection pool that times out.
func cliff(d time.Duration, k int, long time.Duration) service {
	return func(busy int, _ time.Duration, r *rand.Rand) time.Duration {
		if busy > k {
			return long
		}
		return time.Duration(float64(d) * (0.9 + 0.2*r.Float64()))
	}
}

// metastable: when more than k run at once it turns slow, and stays so until fewer than k/2 ran for half a second.
func metastable(d time.Duration, k int, slow float64) func() service {
	return func() service {
		sick, last := false, time.Duration(0)
		var mu sync.Mutex
		return func(busy int, at time.Duration, r *rand.Rand) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case busy > k:
				sick, last = true, at
			case busy > k/2 && sick:
				last = at
			case at-last > 500*time.Millisecond:
				sick = false
			}
			f := 0.9 + 0.2*r.Float64()
			if sick {
				f *= slow * math.Max(1, float64(busy)/float64(k))
			}
			return time.Duration(float64(d) * f)
		}
	}
}

// from changes the handler time at a moment.
func from(at time.Duration, before, after service) service {
	return between(at, math.MaxInt64, after, before)
}

// between has one handler time between two moments and another outside.
func between(a, b time.Duration, in, out service) service {
	return func(busy int, at time.Duration, r *rand.Rand) time.Duration {
		if at > a && at <= b {
			return in(busy, at, r)
		}
		return out(busy, at, r)
	}
}

// outside is a load of others on the same machine: for times of some 300 ms on average all handlers take one to four times as
// long.
func outside(alone service) func() service {
	return func() service {
		r := rand.New(rand.NewPCG(21, 22))
		var mu sync.Mutex
		until, factor := time.Duration(0), 1.0
		return func(busy int, at time.Duration, luck *rand.Rand) time.Duration {
			mu.Lock()
			for at >= until {
				until += time.Duration(float64(300*ms) * r.ExpFloat64())
				factor = math.Pow(4, r.Float64())
			}
			f := factor
			mu.Unlock()
			return time.Duration(float64(alone(busy, at, luck)) * f)
		}
	}
}
