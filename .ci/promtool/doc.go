// Package promtool has promtool, of Prometheus, and evaluates by Prometheus' own engine what dashboard and alerts ask, on what
// two processes of longshore answered. It is a module of its own, so that Prometheus reaches nobody's go.sum. .ci/manifests runs
// it.
package promtool
