package brokertest

// cases lists the suite: by subject, and within one from the plain to the hard.
func cases() []testCase {
	again := needsRedelivery
	return []testCase{
		// What is handed out.
		{name: "HandedOutOnce", run: handedOutOnce},
		{name: "SharedByGroup", setup: Setup{Partitions: 4}, run: sharedByGroup},
		{name: "AtLeastOnce", setup: Setup{Partitions: 4}, run: atLeastOnce, why: again},
		{name: "Order", run: order},
		{name: "SeveralTopics", setup: Setup{Topics: 2, Partitions: 2}, run: severalTopics},

		// Settling.
		{name: "SettleOnce", run: settleOnce, why: again},
		{name: "SettleOfManyAtOnce", setup: Setup{Partitions: 2}, run: settleOfManyAtOnce},
		{name: "GiveBack", run: giveBack, why: again},
		{name: "GiveBackDelay", run: giveBackDelay, why: needsNativeDelay},
		{name: "Attempts", run: attempts, why: again},
		{name: "UncountedGiveBacks", run: uncountedGiveBacks, why: again},
		{name: "Runs", run: runsAreKept, why: needsKeptRuns},
		{name: "RedeliveredWhileOut", run: redeliveredWhileOut, why: again},
		{name: "ForgottenSettles", run: forgottenSettles, why: again},
		{name: "FailedSettles", run: failedSettles, why: again},
		{name: "LongHandlers", setup: Setup{Partitions: 2}, run: longHandlers, why: again},
	}
}
