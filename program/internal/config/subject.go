package config

import (
	"slices"
	"strings"
)

func validSubject(s string) bool {
	tokens := strings.Split(s, ".")
	for i, t := range tokens {
		if t == "" || strings.ContainsAny(t, " \t\r\n") || t == ">" && i < len(tokens)-1 {
			return false
		}
	}
	return true
}

// Publishable says whether a message can be published to a subject: it has no wildcards.
func Publishable(s string) bool { return validSubject(s) && !strings.ContainsAny(s, "*>") }

// Matches says whether a subject with NATS's wildcards takes every message of another.
func Matches(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, t := range p {
		switch {
		case t == ">":
			return len(s) > i
		case i >= len(s) || t != s[i] && (t != "*" || s[i] == ">"):
			return false
		}
	}
	return len(p) == len(s)
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

// hasToken says whether some subject that a pattern takes has the nth token, counted from 1, or from -1 at its end.
func hasToken(pattern string, n int) bool {
	tokens := strings.Split(pattern, ".")
	return tokens[len(tokens)-1] == ">" || len(tokens) >= max(n, -n)
}
