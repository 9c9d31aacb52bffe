package kafkabroker

import "time"

// A pace is how many bytes are sent at a time. What had no time to be written, over a slow network or after an outage, would be
// tried again as it is, and be late again, for ever. So it is followed by half as much, and what was done with much time left by
// twice as much, until there is no bound but most again.
type pace struct {
	least, most int64
	bound       int64 // 0: there is none but most
}

// late says that so many bytes were too many.
func (p *pace) late(had int64) { p.bound = max(min(had, p.most)/2, p.least) }

// plenty is in what part of its time something has to be done for twice as much to be tried.
const plenty = 4

// done says that what was sent took so long, of the time that it had.
func (p *pace) done(took, of time.Duration) {
	if took >= of/plenty {
		return
	}
	if p.bound *= 2; p.bound >= p.most {
		p.bound = 0
	}
}
