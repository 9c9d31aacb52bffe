package published_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/published"
)

// What is said of each of two messages: a letter for each error that is in its own.
func TestEach(t *testing.T) {
	a, b := errors.New("a"), fmt.Errorf("b: %w", broker.ErrRefused)
	of := func(errs ...error) error { return &broker.PublishError{Errs: errs} }
	for name, c := range map[string]struct {
		err  error
		want string
		told bool
	}{
		"none":                   {nil, "/", false},
		"one for all":            {a, "a/a", false},
		"two for all":            {errors.Join(a, b), "ab/ab", false},
		"of each":                {of(a, nil), "a/", true},
		"of none":                {of(nil, nil), "/", true},
		"wrapped":                {fmt.Errorf("twice: %w", of(nil, a)), "/a", true},
		"joined":                 {errors.Join(of(a, nil), of(b, b)), "ab/b", true},
		"beside one for all":     {errors.Join(of(a, nil), b), "ab/b", true},
		"wrapped, beside others": {fmt.Errorf("x: %w and %w", a, fmt.Errorf("y: %w", of(nil, b))), "a/ab", true},
		"a nil one":              {(*broker.PublishError)(nil), "?/?", true},
		"a nil one beside":       {errors.Join(of(a, nil), (*broker.PublishError)(nil)), "a/?", true},
		"of more":                {of(a, nil, nil), "a/a", true},
		"of fewer, beside":       {errors.Join(of(a, nil), of(b)), "ab/b", true},
	} {
		errs, told := published.Each(c.err, 2)
		got := ""
		for i, err := range errs {
			if i > 0 {
				got += "/"
			}
			if errors.Is(err, a) {
				got += "a"
			}
			if errors.Is(err, b) {
				got += "b"
			}
			if err != nil && !errors.Is(err, a) && !errors.Is(err, b) {
				got += "?"
			}
		}
		if got != c.want || told != c.told {
			t.Errorf("%s: %s, %t, want %s, %t", name, got, told, c.want, c.told)
		}
	}
}
