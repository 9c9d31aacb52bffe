// Package replicas decides how many processes a consumer needs: those that keep up with what arrives and drain what waits, at
// what one process does with all of its workers. It has no clock and asks nobody: a Tracker is fed with readings, and Need is a
// function.
//
//	need = (arrivals/s + backlog / drain) / what one process does
//
// A process grows to its most workers by itself within a moment, so only what is beyond that asks for another process. The need
// goes to an autoscaler as a number of processes whose target is 1, so that the autoscaler's arithmetic adds nothing.
package replicas
