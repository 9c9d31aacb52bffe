package kafkabroker

import (
	"context"
	"fmt"
)

// featuresVersion is the first of ApiVersions whose answer tells what the cluster has agreed on (KIP-584).
const featuresVersion = 3

// feature is the level of a feature that the cluster has agreed on; 0: it has not, or does not tell. Only a broker that speaks
// featuresVersion may be asked.
func (c *cluster) feature(ctx context.Context, node int32, name string) (int16, error) {
	w := writer{flexible: true}
	w.str("longshore")
	w.str("unknown") // our version
	w.tags()
	r, err := c.do(ctx, node, keyAPIVersions, featuresVersion, w.b)
	if err != nil {
		return 0, err
	}
	levels, err := readFeatures(r)
	if err != nil {
		return 0, fmt.Errorf("asking for features: %w", err)
	}
	return levels[name], nil
}

// tagFinalized is the field of the answer that has what was agreed on.
const tagFinalized = 2

// readFeatures reads the level of each feature that was agreed on.
func readFeatures(r *reader) (map[string]int16, error) {
	if err := codeErr(r.i16()); err != nil {
		return nil, err
	}
	r.each(func() { // versions of requests
		r.take(6)
		r.tags()
	})
	r.i32() // throttle time
	levels := make(map[string]int16)
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		tag := r.uvarint()
		field := &reader{b: r.take(int(min(r.uvarint(), 1<<31))), flexible: true}
		if tag != tagFinalized {
			continue
		}
		field.each(func() {
			name := field.str()
			levels[name] = field.i16() // the highest
			field.i16()
			field.tags()
		})
		r.bad = r.bad || field.bad
	}
	return levels, r.err()
}
