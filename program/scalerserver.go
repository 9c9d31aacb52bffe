package program

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/internal/replicas"
	pb "github.com/longshoremq/longshore/program/internal/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// replicasMetric is the metric that KEDA asks for: a number of processes, with 1 as its target.
const replicasMetric = "replicas"

// firstSight is how long a call waits for the first looks at the broker.
const firstSight = 10 * time.Second

// A scalerServer answers KEDA. All of its answers of one moment come from one sighting: KEDA drops the metrics where IsActive
// fails.
type scalerServer struct {
	pb.UnimplementedExternalScalerServer
	targets  map[string]*scalerTarget
	settings replicas.Settings
}

// newScalerServer has no TLS where there is no certificate.
func newScalerServer(targets map[string]*scalerTarget, s replicas.Settings, cert, key string) (*grpc.Server, error) {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(64 << 10), grpc.MaxConcurrentStreams(256), grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
	if cert != "" {
		c, err := newCertificate(cert, key)
		if err != nil {
			return nil, usageError{fmt.Errorf("reading --tls-cert and --tls-key: %w", err)}
		}
		options = append(options, grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get})))
	}
	g := grpc.NewServer(options...)
	pb.RegisterExternalScalerServer(g, &scalerServer{targets: targets, settings: s})
	healthpb.RegisterHealthServer(g, health.NewServer())
	return g, nil
}

// serveGRPC serves until ctx ends. Streams, which have no end of their own, are cut.
func serveGRPC(ctx context.Context, g *grpc.Server, l net.Listener) error {
	defer context.AfterFunc(ctx, g.Stop)()
	if err := g.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("scaler: serving: %w", err)
	}
	return nil
}

// asked finds the consumer that a ScaledObject names, and what it sets. A file with one consumer needs no name.
func (s *scalerServer) asked(ref *pb.ScaledObjectRef) (*scalerTarget, replicas.Settings, error) {
	meta := ref.GetScalerMetadata()
	name := meta["consumer"]
	if name == "" && len(s.targets) == 1 {
		for name = range s.targets {
		}
	}
	t, ok := s.targets[name]
	if !ok {
		names := strings.Join(slices.Sorted(maps.Keys(s.targets)), ", ")
		return nil, s.settings, status.Errorf(codes.NotFound, "metadata consumer is %q, want one of: %s", name, names)
	}
	settings, err := withMetadata(s.settings, meta)
	return t, settings, err
}

// withMetadata is s with what a ScaledObject sets.
func withMetadata(s replicas.Settings, meta map[string]string) (replicas.Settings, error) {
	for key, set := range map[string]struct {
		most float64
		to   func(float64)
	}{
		"perReplica":   {maxPerReplica, func(n float64) { s.PerReplica = n }},
		"drainSeconds": {maxDrain.Seconds(), func(n float64) { s.Drain = time.Duration(n * float64(time.Second)) }},
	} {
		text, ok := meta[key]
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n > 0 && n <= set.most) || key == "drainSeconds" && n < 1 {
			return s, status.Errorf(codes.InvalidArgument,
				"metadata %s is %q, want a number above 0 and at most %g (drainSeconds: from 1)", key, text, set.most)
		}
		set.to(n)
	}
	return s, nil
}

// answer is what a ScaledObject gets.
func (s *scalerServer) answer(ctx context.Context, ref *pb.ScaledObjectRef) (replicas.Answer, error) {
	t, settings, err := s.asked(ref)
	if err != nil {
		return replicas.Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, firstSight)
	defer cancel()
	a, _, err := t.answer(ctx, settings)
	if err != nil {
		return a, status.Errorf(codes.Unavailable, "consumer %s: how many processes it needs is not known: %v", t.name, err)
	}
	return a, nil
}

func (s *scalerServer) IsActive(ctx context.Context, ref *pb.ScaledObjectRef) (*pb.IsActiveResponse, error) {
	a, err := s.answer(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &pb.IsActiveResponse{Result: a.Active}, nil
}

// StreamIsActive tells at once whether there is work, and whenever that changes. What is unknown is not told.
func (s *scalerServer) StreamIsActive(ref *pb.ScaledObjectRef, out grpc.ServerStreamingServer[pb.IsActiveResponse]) error {
	t, settings, err := s.asked(ref)
	if err != nil {
		return err
	}
	for told, was := false, false; ; {
		last, next := t.now()
		if f := last.figures; last.err == nil && last.times > 0 {
			active := replicas.Need(f, settings).Active
			// Before the second look nobody knows what comes, so there may be work; that there is none is not known yet.
			if (active || f.Known) && (!told || active != was) {
				if err := out.Send(&pb.IsActiveResponse{Result: active}); err != nil {
					return err
				}
				told, was = true, active
			}
		}
		select {
		case <-next:
		case <-out.Context().Done():
			return nil
		}
	}
}

func (s *scalerServer) GetMetricSpec(_ context.Context, ref *pb.ScaledObjectRef) (*pb.GetMetricSpecResponse, error) {
	if _, _, err := s.asked(ref); err != nil {
		return nil, err
	}
	return &pb.GetMetricSpecResponse{MetricSpecs: []*pb.MetricSpec{{MetricName: replicasMetric, TargetSize: 1,
		TargetSizeFloat: 1}}}, nil
}

func (s *scalerServer) GetMetrics(ctx context.Context, q *pb.GetMetricsRequest) (*pb.GetMetricsResponse, error) {
	a, err := s.answer(ctx, q.GetScaledObjectRef())
	if err != nil {
		return nil, err
	}
	// KEDA takes the integer where the other is not above 0.
	return &pb.GetMetricsResponse{MetricValues: []*pb.MetricValue{
		{MetricName: replicasMetric, MetricValue: int64(math.Ceil(a.Replicas)), MetricValueFloat: a.Replicas},
	}}, nil
}
