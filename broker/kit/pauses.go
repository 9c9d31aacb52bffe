package kit

// Pauses are what is paused: all, or some topics; see broker.Pauser. The zero value has nothing paused. It is not safe for
// concurrent use.
type Pauses struct {
	all    bool
	topics map[string]bool
}

// Pause pauses the topics; none means all.
func (p *Pauses) Pause(topics ...string) {
	if len(topics) == 0 {
		p.all = true
	}
	for _, t := range topics {
		if p.topics == nil {
			p.topics = make(map[string]bool)
		}
		p.topics[t] = true
	}
}

// Resume undoes that; without topics it undoes each Pause, whatever it named. While all are paused, to resume one changes
// nothing.
func (p *Pauses) Resume(topics ...string) {
	if len(topics) == 0 {
		p.all = false
		clear(p.topics)
	}
	for _, t := range topics {
		delete(p.topics, t)
	}
}

// Has says whether the topic is paused.
func (p *Pauses) Has(topic string) bool { return p.all || len(p.topics) > 0 && p.topics[topic] }

// All says whether all topics are paused by a Pause without topics.
func (p *Pauses) All() bool { return p.all }
