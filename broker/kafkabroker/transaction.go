package kafkabroker

// A txnPhase is how far the transaction of a process is. There is one at a time. It is a state machine without I/O: the
// transactor tells it what came of what it did, and it says what has to be done before the next transaction may begin.
//
//	stranger ──named──▶ idle ──begun──▶ under way ──ended──▶ idle
//	                                     │     └───unanswered──▶ unclear ──named──▶ settled ──told──▶ idle
//	                                     │                          └───confirmed──▶ broken
//	                                     └───failed──▶ broken ──named──▶ idle
//
// named is the answer to InitProducerId. It does three things at the coordinator: it aborts a transaction that is open, it
// waits until one that was committed or aborted is that everywhere, and from then on what was sent under the epoch before is
// refused. So behind it nothing of the last transaction can change any more.
//
// An EndTxn that got no answer is sent again first: it commits a transaction that is open, and says yes to one that is committed
// already. Where it is refused, the transaction was aborted for being late, most likely, but also a name that somebody else has
// by now is refused. So it is read from the committed offsets then, which belong to the transaction, too. They alone do not tell:
// what another member of the group commits late, of a topic that was deleted and made anew since, hides ours. Whatever is
// answered, the next transaction has another name: the first EndTxn may be under way yet, and would commit the half of it.
type txnPhase int

const (
	txnStranger txnPhase = iota // we have no producer id
	txnIdle                     // nothing is open
	txnUnderWay                 // something was sent, and EndTxn was not
	txnBroken                   // nothing may be committed under our name any more: what is open is aborted
	txnUnclear                  // EndTxn got no answer: it is committed, aborted, or open
	txnSettled                  // it is committed or aborted, and we do not know which
)

// A txnEvent is what came of an exchange.
type txnEvent int

const (
	txnNamed      txnEvent = iota // InitProducerId was answered
	txnBegun                      // the first request of a transaction is about to be sent
	txnFailed                     // a request before EndTxn failed, or was not answered
	txnEnded                      // EndTxn was answered: committed
	txnUnanswered                 // it was not, or with an error, which says nothing: its coordinator may have failed behind it
	txnConfirmed                  // EndTxn was sent again and answered: committed
	txnTold                       // the committed offsets say what became of it
)

// txnWays are all transitions that there are. An event that has none in a phase leaves it as it is.
var txnWays = map[txnPhase]map[txnEvent]txnPhase{
	txnStranger: {txnNamed: txnIdle},
	txnIdle:     {txnNamed: txnIdle, txnBegun: txnUnderWay},
	txnUnderWay: {txnFailed: txnBroken, txnEnded: txnIdle, txnUnanswered: txnUnclear},
	txnBroken:   {txnNamed: txnIdle},
	txnUnclear:  {txnNamed: txnSettled, txnConfirmed: txnBroken},
	txnSettled:  {txnNamed: txnSettled, txnTold: txnIdle},
}

// after is the phase after an event.
func (p txnPhase) after(e txnEvent) txnPhase {
	if next, ok := txnWays[p][e]; ok {
		return next
	}
	return p
}

// needsName says whether InitProducerId comes next.
func (p txnPhase) needsName() bool { return p == txnStranger || p == txnBroken || p == txnUnclear }

// isOpenQuestion says whether the last transaction's fate has to be found out before anything else is sent.
func (p txnPhase) isOpenQuestion() bool { return p == txnUnclear || p == txnSettled }
