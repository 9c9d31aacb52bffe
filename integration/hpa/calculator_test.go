// Package hpa asks the calculator of Kubernetes' HorizontalPodAutoscaler: a module of its own, for that one has some hundred
// packages.
package hpa

import (
	"bytes"
	"context"
	"encoding/csv"
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
	"unsafe"

	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
)

// external has one external metric, and no other.
type external struct {
	metrics.MetricsClient
	milli int64
}

func (e *external) GetExternalMetric(string, string, labels.Selector) ([]int64, time.Time, error) {
	return []int64{e.milli}, time.Now(), nil
}

// These are of the interface, and never asked for.
func (e *external) GetResourceMetric(context.Context, core.ResourceName, string, labels.Selector, string) (metrics.PodMetricsInfo,
	time.Time, error) {
	panic("not asked for")
}

func (e *external) GetObjectMetric(string, string, *autoscaling.CrossVersionObjectReference, labels.Selector) (int64, time.Time,
	error) {
	panic("not asked for")
}

// tolerances are the default; their fields are private.
func tolerances() (t podautoscaler.Tolerances) {
	*(*[2]float64)(unsafe.Pointer(&t)) = [2]float64{0.1, 0.1}
	return t
}

var update = flag.Bool("update", false, "write the table anew")

// TestCalculator: the table that integration/autoscaler is held against is what Kubernetes computes.
func TestCalculator(t *testing.T) {
	client := &external{}
	calculator := podautoscaler.NewReplicaCalculator(client, nil, 0, 0)
	random := rand.New(rand.NewPCG(1, 1))
	rows := [][]string{{"replicas", "metric in thousandths, target 1000", "wanted"}}
	add := func(have int32, milli int64) {
		client.milli = milli
		want, _, _, err := calculator.GetExternalPerPodMetricReplicas(have, 1000, "replicas", tolerances(), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, []string{strconv.Itoa(int(have)), strconv.FormatInt(milli, 10), strconv.Itoa(int(want))})
	}
	for have := range int32(13) {
		for _, part := range []int64{0, 1, 500, 899, 900, 901, 999, 1000, 1001, 1099, 1100, 1101, 2000} {
			add(have, int64(have)*part)
		}
	}
	for range 1500 {
		have := random.Int32N(30) + 1
		add(have, random.Int64N(int64(have)*3000))
	}
	var text bytes.Buffer
	if err := csv.NewWriter(&text).WriteAll(rows); err != nil {
		t.Fatal(err)
	}
	const path = "../autoscaler/testdata/calculator.csv"
	if *update {
		if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, text.Bytes()) {
		t.Errorf("%s is not what Kubernetes computes (%v): go test -update, here", path, err)
	}
}
