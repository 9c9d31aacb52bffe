package admin

import (
	"encoding/json"
	"math"
	"net/http"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/pool"
)

// status is the answer to GET /consumers/{name}. Its names are stable. What is unknown is null.
type status struct {
	Name    string  `json:"consumer"`
	State   string  `json:"state"`
	Paused  bool    `json:"paused"`
	Ready   bool    `json:"ready"`
	Limits  bounds  `json:"limits"`
	Workers workers `json:"workers"`
	// Messages received here and not settled, and of these what waits for a worker, and for its next attempt; put_off of those
	// did not fail, and lane_waiting waits for the one before it in its order.
	InFlight int64 `json:"in_flight"`
	Queued   int   `json:"queued"`
	Parked   int   `json:"parked"`
	PutOff   int   `json:"put_off"`
	Behind   int   `json:"lane_waiting"`
	// FullLanes take in nothing more.
	FullLanes int `json:"full_lanes"`
	// Claims are the partitions that it has; 1 or 0 where there are none. With 0 it stands by.
	Claims int `json:"claims"`
	// Messages that handlers returned from since the start, and the time of these: what a worker can do follows from it.
	Runs       int64   `json:"runs"`
	RunSeconds float64 `json:"run_seconds"`
	// Since the start: messages whose handler returned nil, those that it skipped, runs that failed, and dead letters.
	Handled      int64 `json:"handled"`
	Skipped      int64 `json:"skipped"`
	Failed       int64 `json:"failed"`
	DeadLettered int64 `json:"dead_lettered"`
	// LettersDelayed are dead letters that could not be stored so far.
	LettersDelayed int `json:"dead_letters_delayed"`
	// Decision is the last change of the number of workers.
	Decision *decision `json:"decision"`
	// Lag and Unsettled at the broker.
	Lag          *int64     `json:"lag"`
	Unsettled    *int64     `json:"unsettled"`
	LagAt        *time.Time `json:"lag_at"`
	LastProgress *time.Time `json:"last_progress"`
	// Breakers around its handlers, by name.
	Breakers map[string]breaker `json:"breakers"`
	// AtSharedLimit: most of what is here waits for limits, which processes share, so that another process would bring no more.
	AtSharedLimit bool `json:"at_shared_limit"`
}

type breaker struct {
	State string `json:"state"`
	// OpenSince is null while it is closed.
	OpenSince *time.Time `json:"open_since"`
}

// counted is a sum of durations that begins again at 0 where it would become negative.
func counted(d time.Duration) time.Duration { return d & math.MaxInt64 }

func breakersOf(all map[string]Breaker) map[string]breaker {
	shown := map[string]breaker{}
	for name, b := range all {
		shown[name] = breaker{b.State(), when(b.OpenSince())}
	}
	return shown
}

type bounds struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

type workers struct {
	Busy  int `json:"busy"`
	Idle  int `json:"idle"`
	Stuck int `json:"stuck"`
}

type decision struct {
	From   int         `json:"from"`
	To     int         `json:"to"`
	Reason pool.Reason `json:"reason"`
	Why    string      `json:"why"`
	At     time.Time   `json:"at"`
}

func decisionOf(s pool.Stats) *decision {
	if s.Decisions == 0 {
		return nil
	}
	return &decision{s.Last.From, s.Last.Target, s.Last.Reason, s.Last.Why(), s.Last.At.UTC()}
}

// show tells how a consumer is. As /metrics, which tells the same, it needs no token.
func (s *Server) show(w http.ResponseWriter, r *http.Request) {
	t, ok := s.target(w, r)
	if !ok {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.statusOf(r.PathValue("name"), t))
}

// list tells how all consumers are, by name.
func (s *Server) list(w http.ResponseWriter, _ *http.Request) {
	all := make([]status, len(s.names))
	for i, name := range s.names {
		all[i] = s.statusOf(name, s.cfg.Targets[name])
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string][]status{"consumers": all})
}

func (s *Server) statusOf(name string, t Target) status {
	st := t.Stats()
	return status{
		Name: name, State: st.State.String(), Paused: st.Paused, Ready: t.Ready(),
		Limits:   bounds{st.Pool.Min, st.Pool.Max},
		Workers:  workers{Busy: st.Pool.Busy, Idle: max(0, st.Pool.Live-st.Pool.Busy), Stuck: st.Pool.Stuck},
		InFlight: st.InFlight, Queued: st.Pool.Backlog, Parked: st.Parked, PutOff: st.PutOff,
		Behind: st.Waiting, FullLanes: st.FullLanes, Claims: st.Claims,
		Handled: st.Handled, Skipped: st.Skipped, Failed: st.Failed, DeadLettered: st.DeadLettered,
		LettersDelayed: st.LettersDelayed,
		Decision:       decisionOf(st.Pool),
		Runs:           st.Pool.Done, RunSeconds: counted(st.Pool.Work).Seconds(),
		Lag: known(st.Lag.Waiting), Unsettled: known(st.Lag.Unsettled), LagAt: when(st.Lag.At), LastProgress: when(st.LastProgress),
		Breakers: breakersOf(s.cfg.Breakers[name]), AtSharedLimit: atSharedLimit(st, s.cfg.Limits[name]),
	}
}

// atSharedLimit: nothing tells which limit put a message off, so a consumer that has others, too, is not said to be at one. What
// waits behind a message in its order waits for the same.
func atSharedLimit(s consumer.Stats, limits map[string]Limit) bool {
	if s.AtLimit == 0 || 2*int64(s.AtLimit) <= s.InFlight-int64(s.Waiting) {
		return false
	}
	for _, l := range limits {
		if _, shared := shareOf(l); !shared {
			return false
		}
	}
	return len(limits) > 0
}

func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
