package handlers

import (
	"errors"
	"strings"
)

// pattern matches topics and subjects, token by token, as NATS does: tokens are separated by dots, "*" stands for one token, ">"
// as the last one for one or more. Kafka topics are matched the same way.
type pattern struct{ tokens []string }

func parsePattern(s string) (pattern, error) {
	if s == "" {
		return pattern{}, errors.New("is empty")
	}
	if strings.ContainsAny(s, " \t\r\n") {
		return pattern{}, errors.New("has a blank")
	}
	tokens := strings.Split(s, ".")
	for i, t := range tokens {
		switch {
		case t == "":
			return pattern{}, errors.New("has an empty token")
		case t == ">" && i < len(tokens)-1:
			return pattern{}, errors.New(`has ">" before its end`)
		case len(t) > 1 && strings.ContainsAny(t, "*>"):
			return pattern{}, errors.New(`has a wildcard inside a token: "*" and ">" stand for whole tokens`)
		}
	}
	return pattern{tokens}, nil
}

// matches does not allocate.
func (p pattern) matches(topic string) bool {
	rest, more := topic, true
	for _, want := range p.tokens {
		if !more {
			return false
		}
		if want == ">" {
			return true
		}
		var token string
		token, rest, more = strings.Cut(rest, ".")
		if want != "*" && want != token {
			return false
		}
	}
	return !more
}

// covers says whether p matches whatever q matches.
func (p pattern) covers(q pattern) bool {
	for i, t := range p.tokens {
		switch {
		case i >= len(q.tokens):
			return false
		case t == ">":
			return true
		case q.tokens[i] == ">", t != "*" && t != q.tokens[i]:
			return false
		}
	}
	return len(p.tokens) == len(q.tokens)
}

// coversAll is covers where no tokens stand for everything.
func (p pattern) coversAll(q pattern) bool {
	return len(p.tokens) == 0 || len(q.tokens) > 0 && p.covers(q)
}
