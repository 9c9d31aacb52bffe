package brokertest

// cases lists the suite: by subject, and within one from the plain to the hard.
func cases() []testCase {
	again := needsRedelivery
	return []testCase{
		// The harness itself.
		{name: "HarnessIsWhole", run: harnessIsWhole},
		{name: "LeaseIsHeeded", setup: Setup{Lease: longLease}, run: leaseIsHeeded, why: again},

		// What is handed out.
		{name: "HandedOutOnce", run: handedOutOnce},
		{name: "SharedByGroup", setup: Setup{Partitions: 4}, run: sharedByGroup},
		{name: "AtLeastOnce", setup: Setup{Partitions: 4}, run: atLeastOnce, why: again},
		{name: "Order", run: order, why: needsOrder},
		{name: "SeveralTopics", setup: Setup{Topics: 2, Partitions: 2}, run: severalTopics},

		// Settling.
		{name: "SettleOnce", run: settleOnce, why: again},
		{name: "ForeignClaim", run: foreignClaim},
		{name: "SettleOfManyAtOnce", setup: Setup{Partitions: 2}, run: settleOfManyAtOnce},
		{name: "GiveBack", run: giveBack, why: again},
		{name: "GiveBackDelay", run: giveBackDelay, why: needsNativeDelay},
		{name: "Attempts", run: attempts, why: again},
		{name: "UncountedGiveBacks", run: uncountedGiveBacks, why: again},
		{name: "Runs", run: runsAreKept, why: needsKeptRuns},
		{name: "RedeliveredWhileOut", run: redeliveredWhileOut, why: again},
		{name: "ForgottenSettles", run: forgottenSettles, why: again},
		{name: "FailedSettles", run: failedSettles, why: again},
		{name: "FailedForLong", run: failedForLong, why: again},
		{name: "SettlesDoNotWait", run: settlesDoNotWait, why: again},
		{name: "UnconfirmedIsTold", run: unconfirmedIsTold, why: again},
		{name: "LateSettlesFree", run: lateSettlesFree, why: again},
		{name: "LateAck", run: lateAck, why: needsLateAcks},
		{name: "LongHandlers", setup: Setup{Partitions: 2}, run: longHandlers, why: again},
		{name: "PrefetchStays", run: prefetchStays, why: again},

		// Claims.
		{name: "EventsInOrder", run: eventsInOrder},
		{name: "AssignedComesFirst", run: assignedComesFirst},
		{name: "ObserveCallsBack", run: observeCallsBack},
		{name: "Revoked", setup: Setup{Partitions: 2}, run: revoked, why: again},
		{name: "RevokedInTime", setup: Setup{Partitions: 2}, run: revokedInTime, why: again},
		{name: "Stolen", setup: Setup{Partitions: 2}, run: stolen, why: again},
		{name: "Bounced", run: bounced, why: again},
		{name: "BouncedUnderCommit", run: bouncedUnderCommit, why: again},
		{name: "BudgetAtEnd", run: budgetAtEnd, why: again},
		{name: "OutAcrossClaims", run: outAcrossClaims, why: again},
		{name: "OrderAcrossClaims", run: orderAcrossClaims, why: again},
		{name: "OrderAcrossRevoking", run: orderAcrossRevoking, why: again},
		{name: "OrderAfterKill", setup: Setup{Partitions: 2}, run: orderAfterKill, why: again},
		{name: "OrderAfterFreeze", setup: Setup{Partitions: 2}, run: orderAfterFreeze, why: again},
		{name: "OrderAfterClose", setup: Setup{Partitions: 2}, run: orderAfter((*member).close), why: again},
		{name: "SettleRacesEnd", run: settleRacesEnd, why: again},

		// Stop and Close.
		{name: "StopRacesReceive", run: stopRacesReceive, why: again},
		{name: "StopKeepsWhatIsOut", run: stopKeepsWhatIsOut, why: again},
		{name: "StoppedTakesNoClaim", setup: Setup{Partitions: 2}, run: stoppedTakesNoClaim, why: needsPartitions},
		{name: "StoppedAndBounced", run: stoppedAndBounced, why: again},
		{name: "StopReturns", setup: Setup{Lease: longLease}, run: stopReturns, why: again},
		{name: "StopInOrder", setup: Setup{Lease: longLease}, run: stopInOrder, why: again},
		{name: "StopBeforeOpen", run: stopBeforeOpen},
		{name: "ReceiveAfterStop", run: receiveAfterStop},
		{name: "CloseTwiceBesideAck", setup: Setup{Lease: longLease}, run: closeTwiceBesideAck, why: again},
		{name: "CloseWaits", run: closeWaits, why: again},
		{name: "SettleRacesClose", run: settleRacesClose, why: again},
		{name: "CloseGivesBack", setup: Setup{Lease: longLease}, run: closeGivesBack, why: again},
		{name: "CloseBeforeOpen", run: closeBeforeOpen},
		{name: "CloseBesideOpen", run: closeBesideOpen},
		{name: "OpenDeadline", run: openDeadline},
		{name: "CloseInTime", run: closeInTime, why: again},
		{name: "CloseUnsaid", run: closeUnsaid, why: again},
		{name: "CloseGivesBackLate", run: closeGivesBackLate, why: needsSharedLog},
		{name: "CloseWithPastDeadline", run: closeWithPastDeadline, why: again},

		// Budget and pause.
		{name: "BudgetMessages", run: budgetMessages},
		{name: "BudgetBytes", run: budgetBytes},
		{name: "BudgetUsedUpExactly", setup: Setup{Lease: longLease}, run: budgetUsedUpExactly},
		{name: "BytesUsedUp", run: bytesUsedUp},
		{name: "OverBudget", run: overBudget},
		{name: "SetBudget", run: setBudget},
		{name: "Pause", setup: Setup{Topics: 2, Lease: longLease}, run: pauseByTopic, why: again},
		{name: "PauseInOrder", setup: Setup{Lease: longLease}, run: pauseInOrder, why: again},
		{name: "Hold", run: held, why: again},

		// Messages that are gone.
		{name: "TrimmedWhileAway", run: trimmedWhileAway, why: again},
		{name: "TrimmedUnderway", run: trimmedUnderway, why: again},
		{name: "TrimmedAndGivenBack", run: trimmedAndGivenBack, why: again},
		{name: "Recreated", run: recreated, why: again},
		{name: "RecreatedWhileAway", run: recreatedWhileAway, why: again},
		{name: "Undecodable", run: undecodable},
		{name: "MaxDeliveries", run: maxDeliveries, why: needsMaxDeliveries},
		{name: "AtMostOnce", run: atMostOnce, why: needsAtMostOnce},

		// Trouble.
		{name: "CutToBroker", run: cut(ToBroker), why: again},
		{name: "CutFromBroker", run: cut(FromBroker), why: again},
		{name: "CutBoth", run: cut(Both), why: again},
		{name: "ShortCut", run: shortCut, why: again},
		{name: "Killed", run: killed, why: again},
		{name: "Frozen", run: frozen, why: again},
		{name: "DownBeforeOpen", run: downBeforeOpen, why: again},
		{name: "DownLater", run: downLater, why: again},
		{name: "DownAgain", setup: Setup{Lease: longLease}, run: downAgain, why: again},
		{name: "HeartbeatsGoOn", run: heartbeatsGoOn, why: again},
		{name: "Idle", run: idle},
		{name: "Storm", setup: Setup{Partitions: 4}, run: storm, why: again},

		// Lag, payload, publishing, and what is left over.
		{name: "Lag", run: lagIsRight},
		{name: "LagOfTwo", setup: Setup{Partitions: 2}, run: lagOfTwo, why: again},
		{name: "LagWhileDown", run: lagWhileDown},
		{name: "Payloads", run: payloads},
		{name: "BigMessage", run: bigMessage},
		{name: "BytesStay", run: bytesStay},
		{name: "Publish", run: publish},
		{name: "PublishTooLarge", run: publishTooLarge},
		{name: "PublishRepeated", run: publishRepeated},
		{name: "PublishWhileDown", run: publishWhileDown},
		{name: "PublisherClose", run: publisherClose},
		{name: "NoGoroutineLeft", run: noGoroutineLeft, alone: true},
		{name: "NoBufferLeft", run: noBufferLeft, why: again},
	}
}
