package consumer

// A laneTable finds the lanes of a partition by their numbers, and has what waits in each. It is a table with open addressing: a
// lane is found, made and removed some hundred thousand times a second. Its size follows the number of lanes, which the budget
// bounds.
//
// The numbers lie by themselves, eight to a cache line: in most lanes nothing ever waits, and then nothing else is looked at.
type laneTable struct {
	numbers []uint64 // a power of two, at most half of them in use; 0: a free slot. chained is set where something waits, or did
	chains  []chain  // of the slots; nil: nothing has waited yet
	n       int
	spares  laneSpares
}

// chained is set in the number of a lane whose chain is used; numbers have it not (laneOf).
const chained = 1 << 63

const (
	fewSlots = 16
	// keptSlots are kept by an empty table; more were a burst, which may be another partition's next.
	keptSlots = 1 << 10
)

// laneSpares are large tables of slots that are all free. A table that becomes empty leaves its slots here, and one that grows
// takes them, so that partitions which are empty from time to time need no new ones each time. Safe for concurrent use.
type laneSpares chan laneTable

// sparesKept bounds them.
const sparesKept = 4

func newLaneSpares() laneSpares { return make(laneSpares, sparesKept) }

// find returns the slot of a lane, or the free one where it belongs.
func (x *laneTable) find(number uint64) int {
	mask := uint64(len(x.numbers) - 1)
	for i := number & mask; ; i = (i + 1) & mask {
		if v := x.numbers[i]; v&^chained == number || v == 0 {
			return int(i)
		}
	}
}

// add finds the lane of a number or makes it; made says which.
func (x *laneTable) add(number uint64) (i int, made bool) {
	if 2*(x.n+1) > len(x.numbers) {
		x.grow()
	}
	if i = x.find(number); x.numbers[i] != 0 {
		return i, false
	}
	x.numbers[i] = number
	x.n++
	return i, true
}

// grow makes the table twice as large at least.
func (x *laneTable) grow() {
	old := *x
	x.numbers, x.chains = nil, nil
	if size := max(fewSlots, 2*len(old.numbers)); size <= keptSlots || !x.reuse(size) {
		x.numbers = make([]uint64, size)
	}
	for i, v := range old.numbers {
		if v == 0 {
			continue
		}
		at := x.find(v &^ chained)
		x.numbers[at] = v
		if v&chained != 0 {
			*x.chain(at) = old.chains[i]
		}
	}
}

// reuse takes the slots of another table, where there are as many.
func (x *laneTable) reuse(size int) bool {
	select {
	case spare := <-x.spares:
		if len(spare.numbers) >= size {
			x.numbers, x.chains = spare.numbers, spare.chains
			return true
		}
	default:
	}
	return false
}

// remove frees a slot in which nothing waits, and moves what stands behind it because of it.
func (x *laneTable) remove(i int) {
	if x.numbers[i]&chained != 0 {
		x.chains[i].last.done()
		x.chains[i] = chain{}
	}
	if x.n--; x.n == 0 && len(x.numbers) > keptSlots {
		x.numbers[i] = 0
		select {
		case x.spares <- laneTable{numbers: x.numbers, chains: x.chains}:
		default:
		}
		x.numbers, x.chains = nil, nil
		return
	}
	mask := uint64(len(x.numbers) - 1)
	hole := uint64(i)
	for i := (hole + 1) & mask; x.numbers[i] != 0; i = (i + 1) & mask {
		if home := x.numbers[i] & mask; (i-home)&mask < (i-hole)&mask {
			continue
		}
		if x.numbers[hole] = x.numbers[i]; x.numbers[i]&chained != 0 {
			x.chains[hole], x.chains[i] = x.chains[i], chain{}
		}
		hole = i
	}
	x.numbers[hole] = 0
}

// chain is what waits in the lane of a slot, to add to it.
func (x *laneTable) chain(i int) *chain {
	if x.chains == nil {
		x.chains = make([]chain, len(x.numbers))
	}
	x.numbers[i] |= chained
	return &x.chains[i]
}

// waiting is what waits in the lane of a slot; nil: nothing does, or did.
func (x *laneTable) waiting(i int) *chain {
	if x.numbers[i]&chained == 0 {
		return nil
	}
	return &x.chains[i]
}
