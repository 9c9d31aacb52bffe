package natsbroker

// position follows where in the stream a consumer is, to notice messages that are skipped: purged, deleted, or discarded by a
// limit before anybody got them.
//
// What can be known: each delivery to anybody takes the next consumer sequence, and first deliveries come in stream order. So
// when two points with consecutive consumer sequences are known, all that lies between their stream sequences was skipped,
// exactly. A point is a delivery to this process, or what the consumer's info said. Deliveries to other replicas leave holes
// between points, across which nothing is known; then nothing is said, and the replica that sees both sides says it. With a
// filter that leaves something out, or where a stream keeps only the last messages of a subject, numbers are missing by design,
// and nothing is said either.
// Nor is anything said of what was missing before the consumer was made: what was deleted then was never its to get, and a work
// queue, or a stream that keeps what others are interested in, has such holes by what is acked.
type position struct {
	exact    bool     // whether a missing sequence means a skipped message
	filter   []string // of the consumer, when the session began
	holes    holes
	known    bool
	consumer uint64 // consumer sequence of the newest point
	stream   uint64 // highest stream sequence delivered, or skipped, as of it
	info     point  // from the consumer's info, ahead of what came to us
}

type point struct{ consumer, stream uint64 }

// holes are what may have been missing when the consumer was made; none where the stream had none when it was looked at.
type holes struct {
	until uint64 // the stream's end then, where nothing had been delivered yet
	made  int64  // when the consumer was: what stands before a message that is older may have been missing
}

// A gap is a run of skipped messages.
type gap struct {
	from uint64
	n    int64
}

// arrived takes a delivery and returns the gap before it, if there is one.
func (p *position) arrived(d delivery) (gap, bool) {
	if p.info.consumer > p.consumer && p.info.consumer < d.consumer {
		p.consumer, p.stream, p.known = p.info.consumer, max(p.info.stream, p.stream), true
	}
	follows := p.known && d.consumer == p.consumer+1
	if p.behind(d) { // the server forgot: begin anew from here
		p.consumer, p.known, p.info = d.consumer, false, point{}
		return gap{}, false
	}
	before := max(p.stream, p.holes.until)
	p.consumer = d.consumer
	p.known = follows || d.delivered == 1
	p.stream = max(p.stream, d.stream)
	if !follows || !p.exact || d.stream <= before+1 || d.nanos < p.holes.made {
		return gap{}, false
	}
	return gap{from: before + 1, n: int64(d.stream - before - 1)}, true
}

// behind says whether a delivery has a number that was used before.
func (p *position) behind(d delivery) bool { return p.known && d.consumer <= p.consumer }

// polled takes what the consumer's info says was delivered last, and returns what was skipped without any delivery: a purge of
// all that was waiting.
func (p *position) polled(at point) (gap, bool) {
	if !p.known {
		p.known, p.consumer, p.stream = true, at.consumer, max(at.stream, p.stream)
		return gap{}, false
	}
	if at.consumer != p.consumer {
		if at.consumer > p.consumer {
			p.info = at
		}
		return gap{}, false
	}
	if at.stream <= p.stream {
		return gap{}, false
	}
	before := max(p.stream, p.holes.until)
	p.stream = at.stream
	if !p.exact || at.stream <= before {
		return gap{}, false
	}
	return gap{from: before + 1, n: int64(at.stream - before)}, true
}

// begin takes the first sequence that the stream still has, when the consumer stood at delivered, and returns what was discarded
// in between while nobody was there. What was delivered and given back, and was discarded then, the server counts as settled.
func (p *position) begin(delivered, first uint64) (gap, bool) {
	if !p.exact || first == 0 || delivered+1 >= first {
		return gap{}, false
	}
	p.stream = first - 1
	return gap{from: delivered + 1, n: int64(first - 1 - delivered)}, true
}
