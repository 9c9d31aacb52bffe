//go:build unix

package integration

// dlqMutants break promises of replays.
var dlqMutants = []mutant{
	{"a replay does not write down what it begins", "deadletters/replay.go",
		"	if err := r.j.append(ctx, r.record(stepBegin, batch)); err != nil {\n		return err\n	}\n", "",
		"./deadletters", "TestKilledReplayGoesOn"},
	{"letters count as replayed before they are confirmed", "deadletters/replay.go",
		"r.record(stepBegin, batch)", "r.record(stepDone, batch)",
		"./deadletters", "TestKilledReplayGoesOn"},
	{"what was on its way is not looked for", "deadletters/resolve.go",
		"	if len(open) == 0 || err != nil {", "	if len(open) >= 0 {",
		"./deadletters", "TestKilledReplayGoesOn"},
	{"absent in a topic that does not keep what it is given", "deadletters/resolve.go",
		"	if done.Whole {", "	if done.Whole || err == nil {",
		"./deadletters", "TestPerhapsTwiceIsSaid"},
	{"a replay goes on beside a later one", "deadletters/journal.go",
		"	case known.run != j.run:", "	case known.run == \"\":",
		"./deadletters", "TestTwoReplays"},
	{"replays go round for ever", "deadletters/outgoing.go",
		"	case l.Replays >= o.MaxReplays:", "	case l.Replays < 0:",
		"./deadletters", "TestReplaysEnd"},
}
