//go:build unix

package integration

// poolMutants break promises of the policy that decides on the number of workers.
var poolMutants = []mutant{
	{"a growth that does harm is not undone", "pool/proof.go",
		`return s.bar(o, s.ref.n, 3*mostHold, ReasonUndo, "less comes out")`, `return o.stay(ReasonHold, "", tick)`,
		"./pool", "TestScenarios/E2"},
	{"a cliff is believed only when what went over it has ended", "pool/proof.go",
		"grown && s.missing(o)", "false && s.missing(o)",
		"./pool", "TestCliffIsLeftBeforeCallsEnd"},
	{"equal handlers that have not ended are missing", "pool/proof.go",
		"y.done += y.n", "y.done += y.n - s.ref.n",
		"./pool", "TestSlowHandlersAreNoHarm"},
	{"what comes in bunches is a rise", "pool/estimate.go",
		"both := min(e.rise, e.was)", "both := e.rise",
		"./pool", "TestBunchesAreNoRise"},
	{"what others do to the throughput counts as the workers' doing", "pool/proof.go",
		"(min(change, s.shift) - s.others) * part", "0",
		"./pool", "TestScenarios/O3"},
	{"few workers that are all busy for a moment are a reason to grow", "pool/status.go",
		"		short = 3 * o.Rates.Usual\n", "		short = 0\n",
		"./pool", "TestScenarios/L"},
	{"replicas probe one downstream together", "pool/proof.go",
		"(0.75+jitter/2)", "(1+0*jitter)",
		"./pool", "TestHoldsDiffer"},
	{"what a downstream refuses takes no workers away", "pool/status.go",
		"	keep := (1 - part) * float64(o.Workers)", "	keep := float64(o.Workers)",
		"./pool", "TestReportStatusDecides"},
	{"all workers are given to handlers of which none ends", "pool/status.go",
		"o.Max-(o.Max-max(s.seen, freeSize))/2", "o.Max",
		"./pool", "TestReportStatusDecides"},
	{"start and cut hide nothing", "pool/proof.go",
		"bias := max(0, cv2-1) / 2 * h / y.span", "bias := 0 * cv2 * h",
		"./pool", "TestStartAndCutHideOnTheirSide"},
}
