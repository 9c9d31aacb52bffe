package membroker

// A mutant is a set of deliberate mistakes, one bit each. Only tests of this package can make one: they prove that the
// conformance suite sees the mistake.
type mutant uint64

// testMutant is set by tests before they make a source.
var testMutant mutant

const (
	commitThenEnd        mutant = 1 << iota // the last commit is put together before settles are fenced
	freeAtEnd                               // a claim's end frees its budget
	redeliverOut                            // a redelivered message is handed out although it is out
	doneBySequence                          // finished sequences are remembered beyond the stream's recreation
	pauseKeepsPrefetch                      // Pause keeps what was prefetched
	nackEarly                               // the delay of a Nack is ignored
	lostSilently                            // settles that did not hold are not reported, and a late ack says nil
	settleTwice                             // a second settle says nil
	errorWithMessages                       // Receive returns messages together with an error
	stopLosesBuffer                         // Stop forgets what was prefetched
	skipGapSilently                         // a gap is not reported
	countGiveBacks                          // a give-back counts as a run
	ackBeforeSettle                         // a message counts as settled when it was handed out
	noExtension                             // leases are not extended
	bytesUnbounded                          // the budget's bytes are ignored
	closeWithoutCommit                      // Close leaves without a last commit
	lagZero                                 // a lag that is not known is 0
	nackExpired                             // what lost its lease is given back all the same
	strayHandedOut                          // what is out under an ended claim is handed out under the next one
	ackWaits                                // Ack waits for an exchange with the broker
	neverUnconfirmed                        // settles that did not hold are not reported
	unconfirmedAtOpen                       // settles of an unknown number are reported at once, in advance
	lateAckDropped                          // an ack whose lease has run out is not sent
	closeTwiceAtOnce                        // a second Close does not wait
	orderedIgnored                          // Options.Ordered is not looked at
	prefetchNotExtended                     // leases of what Receive has not returned are not extended
	unsentNotExtended                       // leases of what was settled and not sent yet are not extended
	downWithoutErr                          // Down has no Err
	downEachSecond                          // Down is told each second
	downForgotten                           // a Down that begins within a second of the last one is never told
	shrinkIgnored                           // a smaller budget is not used
	lagGroupWrong                           // Lag.Group says the opposite
	killKeepsReceiving                      // Receive goes on after Kill
	commitThenEndAtClose                    // Close puts the last commit together before settles are fenced
	gapFromZero                             // a gap does not say where it begins
	lateKeepsBudget                         // a settle that says ErrLost frees no budget
	assignedLate                            // a claim's messages are handed out beside its Assigned event
	foreignSettled                          // a settle of another source's claim says nil
	usedUpForgotten                         // a budget whose bytes are used up to the last one is not looked at again
	backGoneSilently                        // what was given back and is gone by then is not reported
)

func (m mutant) is(x mutant) bool { return m&x != 0 }
