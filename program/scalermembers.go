package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"syscall"
	"time"

	"github.com/longshoremq/longshore/internal/replicas"
	"golang.org/x/sync/errgroup"
)

// Bounds of how processes are asked.
const (
	askTimeout  = 2 * time.Second
	askAbreast  = 16
	mostAsked   = 1000
	mostOfReply = 64 << 10
	// keepAddresses is for how long they are asked where they were, when nobody tells where they are.
	keepAddresses = time.Minute
	// keepWords is for how long what one told counts that does not answer.
	keepWords = time.Minute
)

// A memberView asks the processes of a consumer how they are, at their admin addresses. It is not for several goroutines at once.
type memberView struct {
	path   string
	hosts  []string // host:port
	sample bool     // there are others
	client *http.Client
	lookup func(ctx context.Context, host string) ([]string, error)
	known  []string  // the addresses, when they were last looked up
	at     time.Time // which was then
	told   map[string]word
}

// A word is what a process told last, and when.
type word struct {
	process *replicas.Process
	at      time.Time
}

func newMemberView(consumer string, hosts []string) *memberView {
	return &memberView{
		path: "/consumers/" + url.PathEscape(consumer), hosts: hosts, lookup: net.DefaultResolver.LookupHost,
		client: &http.Client{
			Timeout:       askTimeout,
			Transport:     &http.Transport{MaxIdleConnsPerHost: 1, MaxIdleConns: 256, IdleConnTimeout: 30 * time.Second},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

func (v *memberView) close() { v.client.CloseIdleConnections() }

// read asks all processes, several at a time. An error: nobody can tell which there are. One that does not answer is there, and
// what it told within the last minute still counts; one that refuses the connection, or does not have the consumer, is not there.
func (v *memberView) read(ctx context.Context) (*replicas.Members, error) {
	if err := v.find(ctx); err != nil {
		return nil, err
	}
	addresses := v.known
	told, there, without := make([]*replicas.Process, len(addresses)), make([]bool, len(addresses)), make([]bool, len(addresses))
	failed := make([]error, len(addresses))
	var asking errgroup.Group
	asking.SetLimit(askAbreast)
	for i, at := range addresses {
		asking.Go(func() error {
			p, err := v.ask(ctx, at)
			told[i], failed[i] = p, err
			without[i] = errors.Is(err, errNotThere)
			there[i] = !errors.Is(err, syscall.ECONNREFUSED) && !without[i]
			return nil
		})
	}
	_ = asking.Wait()
	m := &replicas.Members{}
	words := make(map[string]word)
	for i, p := range told {
		switch {
		case without[i]:
			m.Without++
			continue
		case !there[i]:
			continue
		}
		m.There++
		said := word{p, time.Now()}
		if p == nil {
			said = v.told[addresses[i]]
		}
		if said.process != nil && time.Since(said.at) < keepWords {
			m.Told, words[addresses[i]] = append(m.Told, *said.process), said
		} else if m.Silent == "" && failed[i] != nil {
			m.Silent = fmt.Sprintf("%s tells nothing: %v", addresses[i], failed[i])
		}
	}
	v.told = words
	if v.sample {
		m.There = -1
	}
	return m, nil
}

// find looks the names up. Where that fails, the processes are where they were, for keepAddresses. After that it is an error, and
// not that nothing is known of them: one may be paused, or have a breaker open, and more would be asked for all the same. It
// leaves time to ask them.
func (v *memberView) find(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	addresses, err := v.addresses(ctx)
	if err == nil {
		v.known, v.at = addresses, time.Now()
	}
	if v.at.IsZero() || time.Since(v.at) >= keepAddresses {
		return err
	}
	return nil
}

// addresses looks the names up. A name that nobody has stands for no processes.
func (v *memberView) addresses(ctx context.Context) (all []string, err error) {
	for _, at := range v.hosts {
		host, port, err := net.SplitHostPort(at)
		if err != nil {
			return nil, err
		}
		ips := []string{host}
		if net.ParseIP(host) == nil {
			var missing *net.DNSError
			if ips, err = v.lookup(ctx, host); err != nil && !(errors.As(err, &missing) && missing.IsNotFound) {
				return nil, fmt.Errorf("looking up the processes at %s: %w", at, err)
			}
		}
		for _, ip := range ips {
			all = append(all, net.JoinHostPort(ip, port))
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), mostAsked)], nil
}

// errNotThere: the process that answers does not have the consumer.
var errNotThere = errors.New("it does not have the consumer")

// ask asks one process.
func (v *memberView) ask(ctx context.Context, at string) (*replicas.Process, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+v.path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := v.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	switch answer.StatusCode { // before the body is read: that of 101 is a connection, of which no timeout ends a read
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, errNotThere
	default:
		return nil, fmt.Errorf("it answers %s", answer.Status)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, mostOfReply))
	if err != nil {
		return nil, err
	}
	return processOf(at, body)
}

// processOf reads what GET /consumers/NAME answers.
func processOf(at string, body []byte) (*replicas.Process, error) {
	var s struct {
		Paused     bool
		Limits     struct{ Max int }
		Runs       int64
		RunSeconds float64 `json:"run_seconds"`
		Breakers   map[string]struct{ State string }
		Limited    bool `json:"at_shared_limit"`
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, err
	}
	const longest = float64(1<<63-1) / float64(time.Second)
	if s.Limits.Max < 1 || s.Runs < 0 || !(s.RunSeconds >= 0 && s.RunSeconds < longest) {
		return nil, errors.New("its figures are none")
	}
	p := &replicas.Process{
		Name: at, Workers: s.Limits.Max, Runs: s.Runs, Work: time.Duration(s.RunSeconds * float64(time.Second)), Paused: s.Paused,
		Limited: s.Limited,
	}
	for _, b := range s.Breakers {
		p.Open = p.Open || b.State != "closed"
	}
	return p, nil
}
