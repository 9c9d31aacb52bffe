package middleware

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// The settings of limits, by the names that they have in a configuration file.
const (
	settingPerSecond = "per_second"
	settingBurst     = "burst"
	settingLimit     = "limit"
)

// changed are the settings of have with the values of to. The error names each setting that is not there, or that cannot have its
// value: a rate is a number above 0, all else a whole one from 1 on.
func changed(kind string, have, to map[string]float64) (map[string]float64, error) {
	var wrong []string
	if len(to) == 0 {
		wrong = append(wrong, fmt.Sprintf("nothing is set, want some of %s", strings.Join(slices.Sorted(maps.Keys(have)), ", ")))
	}
	next := maps.Clone(have)
	for _, name := range slices.Sorted(maps.Keys(to)) {
		v := to[name]
		switch _, known := have[name]; {
		case !known:
			wrong = append(wrong, fmt.Sprintf("%s: is no setting of a %s, want some of %s", name, kind,
				strings.Join(slices.Sorted(maps.Keys(have)), ", ")))
		case name == settingPerSecond && !(v > 0 && v <= math.MaxFloat64): // 0 would hold every message for ever
			wrong = append(wrong, fmt.Sprintf("%s: is %v, want more than 0", name, v))
		case name != settingPerSecond && !(v >= 1 && v <= math.MaxInt32 && v == math.Trunc(v)):
			wrong = append(wrong, fmt.Sprintf("%s: is %v, want a whole number, 1 to %d", name, v, math.MaxInt32))
		}
		next[name] = v
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return next, nil
}
