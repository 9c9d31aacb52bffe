// Package published reads what a broker.Publisher returned. One of somebody's own that publishes to two places joins what both
// say, and a message that one of them has not taken is not there.
package published

import (
	"errors"
	"fmt"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/joined"
)

var errNil = errors.New("the publisher returned a nil *PublishError for its error: where nothing has failed, return nil")

// Each is what err, of a Publish of n messages, says of each of them; nil: it is confirmed. told: there is a PublishError in err,
// and else its word is for all alike.
func Each(err error, n int) (errs []error, told bool) {
	each, beside := joined.Apart[*broker.PublishError](err, nil)
	errs = make([]error, n)
	for _, one := range each {
		if one == nil {
			beside = append(beside, errNil)
			continue
		}
		if len(one.Errs) != n { // of which message each of these is, nobody knows
			beside = append(beside, fmt.Errorf("the publisher told of %d messages, of %d: %w", len(one.Errs), n, one))
			continue
		}
		for i, err := range one.Errs {
			errs[i] = joined.Both(errs[i], err)
		}
	}
	for _, all := range beside {
		for i := range errs {
			errs[i] = joined.Both(errs[i], all)
		}
	}
	return errs, len(each) > 0
}
