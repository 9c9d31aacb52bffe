package config

import "strings"

// splitAddresses makes several of an address with commas in it: a list has one item of one variable, and that may name several
// brokers or servers.
func (d *Document) splitAddresses() {
	for _, r := range d.reads() {
		if r.Kafka != nil {
			r.Kafka.Brokers = eachSplit(r.Kafka.Brokers, func(string) bool { return true })
		}
		if _, n, ok := r.nats(); ok { // a login in a URL may have a comma
			n.URLs = eachSplit(n.URLs, func(next string) bool { return strings.Contains(next, "://") })
		}
	}
}

// eachSplit splits each address at the commas after which another one begins.
func eachSplit(list []string, begins func(next string) bool) (all []string) {
	for _, one := range list {
		rest := strings.Split(one, ",")
		all = append(all, rest[0])
		for _, next := range rest[1:] {
			if begins(next) {
				all = append(all, strings.TrimSpace(next))
			} else {
				all[len(all)-1] += "," + next
			}
		}
	}
	return all
}
