package program

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/spf13/cobra"
)

// flagsBeside are those of run, whose process answers as a scaler, too.
func (s *scalerFlags) flagsBeside(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.listen, "scaler", "", "address for KEDA (gRPC): answers as longshore scaler does, beside the consumers "+
		"(default none)")
	f.StringVar(&s.http, "scaler-http", "", "with --scaler: address for GET /scaler and /metrics (default none)")
	s.settings.Drain, s.every, s.sample = time.Minute, 2*time.Second, true
}

func (s *scalerFlags) checkBeside() error {
	if s.listen == "" {
		if s.http != "" {
			return errors.New("--scaler-http is set and --scaler is not")
		}
		return nil
	}
	return s.check()
}

// beside answers until ctx ends, or ended is called: a consumer that failed has ended no context. ended waits for that, and says
// why it could not answer. Then the consumers are stopped, too: an autoscaler relies on the answers.
func (s *scalerFlags) beside(ctx context.Context, a *assembly) (ended func() error) {
	if s.listen == "" {
		return func() error { return nil }
	}
	if a.admin != nil { // it is bound
		s.processes = []string{ownAddress(a.admin.Addr().String())}
	}
	ctx, end := context.WithCancel(ctx)
	result := make(chan error, 1)
	go func() {
		err := s.run(ctx, a.doc, a.log)
		if ctx.Err() != nil {
			err = nil // it was stopped, perhaps before it had begun
		}
		if err != nil {
			a.halt(err)
		}
		result <- err
	}()
	return func() error {
		end()
		return <-result
	}
}

// ownAddress is where this process reaches what listens at an address.
func ownAddress(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
