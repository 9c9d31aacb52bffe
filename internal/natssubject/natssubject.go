// Package natssubject knows the subjects of NATS: tokens with dots between them, where * stands for one token, and > for one or
// more at the end.
package natssubject

import (
	"slices"
	"strings"
)

// Valid says whether s is a subject, wildcards included.
func Valid(s string) bool {
	tokens := strings.Split(s, ".")
	for i, t := range tokens {
		if t == "" || strings.ContainsAny(t, " \t\r\n") || t == ">" && i < len(tokens)-1 {
			return false
		}
	}
	return true
}

// Publishable says whether a message can be published to a subject: it has no wildcards.
func Publishable(s string) bool { return Valid(s) && !strings.ContainsAny(s, "*>") }

// Matches says whether a pattern takes every message of another, which may be a subject without wildcards.
func Matches(pattern, other string) bool {
	for {
		p, ps, more := strings.Cut(pattern, ".")
		o, os, others := strings.Cut(other, ".")
		switch {
		case p == ">":
			return true
		case o == ">" || p != o && p != "*" || more != others:
			return false
		case !more:
			return true
		}
		pattern, other = ps, os
	}
}

// Overlap says whether there is a subject that both of two patterns take.
func Overlap(one, other string) bool {
	p, q := strings.Split(one, "."), strings.Split(other, ".")
	for i := range min(len(p), len(q)) {
		switch {
		case p[i] == ">" || q[i] == ">": // the rest of the other is one token at least
			return true
		case p[i] != q[i] && p[i] != "*" && q[i] != "*":
			return false
		}
	}
	return len(p) == len(q)
}

// Widest leaves out what another subject of the list takes. The rest is sorted.
func Widest(subjects []string) []string {
	subjects = slices.Compact(slices.Sorted(slices.Values(subjects)))
	return slices.DeleteFunc(slices.Clone(subjects), func(s string) bool {
		return slices.ContainsFunc(subjects, func(o string) bool { return o != s && Matches(o, s) })
	})
}

// HasToken says whether some subject that a pattern takes has the nth token, counted from 1, or from -1 at its end.
func HasToken(pattern string, n int) bool {
	tokens := strings.Split(pattern, ".")
	return tokens[len(tokens)-1] == ">" || len(tokens) >= max(n, -n)
}
