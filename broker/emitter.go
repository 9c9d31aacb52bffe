package broker

// An Emitter is an ability of a Source, found by type assertion after Open: it stores messages together with the acks of those
// that they were made of. It has to be there where Traits.Atomic is set, and is not used otherwise; a decorator of a source
// must forward it.
//
// What it promises, to who reads only what is committed:
//
//   - the outputs of an ack that holds are there, each once, whatever happens between the ack and the broker: a lost connection,
//     a lost answer, a restart. An answer that got lost says nothing of what was stored, so that the adapter has to find out
//     before it sends anything again;
//   - the outputs of an ack that does not hold are not there, ever: it said ErrLost, its claim was lost before the ack was
//     committed, or the process died. Its message comes again, and what is made of it then is what is stored;
//   - within a partition that is written, outputs stand in the order of the acks of a claim, and of one ack in the order in which
//     they are given.
//
// What is acked and not yet stored is the adapter's to keep, and to bound: an adapter counts its bytes in the budget, and lets no
// more in where its window is full of it. What cannot be stored is held and tried again, and told by Down or Warning; it must
// hold up neither acks nor outputs that go elsewhere. Where the broker refuses an output for good, after its ack, and CheckEmit
// can tell from then on, the ack may be taken back: it is told as Unconfirmed, and its messages come again under the same claim.
// A claim that ends in good order waits for it no longer than a time of the adapter's own; what is not stored by then is told as
// Unconfirmed, and comes again. What is not stored when the topic of its messages is gone is told so, too, and comes no more.
type Emitter interface {
	// AckEmitting settles messages as Ack does, and stores what was made of them: rules and results are those of Ack. The messages
	// of one emission belong together: they count as handled when all its outputs are stored, and not before. es is not empty, and
	// neither it nor its slices of tokens are kept, but its outputs are, slices and bytes: nobody writes to them any more. From any
	// goroutine. It does not wait for the network.
	AckEmitting(c *Claim, es []Emission) error
	// CheckEmit returns an error that wraps ErrRefused where it is plain that o would never be stored: too large, a reserved
	// topic, none. The engine asks before it acks, while the handler can still fail. It does not block; nil is no promise.
	CheckEmit(o *Outgoing) error
	// Carries says whether what p publishes goes where AckEmitting stores. If so, the engine emits what it would else publish by p
	// before an ack: dead letters, and what goes to retry topics. It does not block.
	Carries(p Publisher) bool
}

// An Emission is messages of one claim, and what was made of them.
type Emission struct {
	// Tokens are those of the messages; not empty.
	Tokens []uint64
	// Outs are what is stored with their ack, perhaps nothing.
	Outs []Outgoing
}
