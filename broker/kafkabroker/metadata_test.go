package kafkabroker

import (
	"encoding/base64"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func drawProgress(t *rapid.T) progress {
	p := progress{
		base: rapid.Int64Range(0, 1<<40).Draw(t, "base"), log: rapid.Uint64().Draw(t, "log"), starts: rapid.IntRange(0, 9).Draw(t,
			"starts"), first: rapid.IntRange(0, 300).Draw(t, "first"),
	}
	at := p.base
	for range rapid.IntRange(0, 60).Draw(t, "spans") {
		from := at + rapid.Int64Range(1, 300).Draw(t, "gap")
		at = from + rapid.Int64Range(1, 300).Draw(t, "done")
		p.done = append(p.done, span{from, at})
	}
	o := p.base - 1
	for range rapid.IntRange(0, 5).Draw(t, "runs") {
		o += rapid.Int64Range(1, 100).Draw(t, "at")
		p.runs = append(p.runs, failedRuns{o, rapid.Int32Range(1, 1<<30).Draw(t, "n")})
	}
	return p
}

func TestMetadataRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgress(t)
		got, err := decodeMetadata(p.base, p.encode(metadataLimit))
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Fatalf("got %+v, %v\nwant %+v", got, err, p)
		}
	})
}

// TestMetadataShort proves that whatever the room, the string fits and says nothing that is not so.
func TestMetadataShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgress(t)
		limit := rapid.IntRange(64, 300).Draw(t, "limit")
		s := p.encode(limit)
		if len(s) > limit {
			t.Fatalf("%d bytes, want at most %d", len(s), limit)
		}
		got, err := decodeMetadata(p.base, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range got.done {
			for o := d.from; o < d.to; o++ {
				if !within(p.done, o) {
					t.Fatalf("%d is called finished", o)
				}
			}
		}
		for i, r := range got.runs {
			if p.runs[i] != r {
				t.Fatalf("runs are %v, want the first of %v", got.runs, p.runs)
			}
		}
	})
}

func TestMetadataForeign(t *testing.T) {
	for _, s := range []string{"", "consumer-1 on host", "lAAB"} {
		if p, err := decodeMetadata(7, s); err != nil || p.base != 7 || p.done != nil {
			t.Errorf("%q: %+v, %v", s, p, err)
		}
	}
	good := progress{base: 7, done: []span{{9, 12}}}.encode(metadataLimit)
	for _, s := range []string{"ls1.", "ls1.!!", good[:len(good)-2], good[:6] + "x" + good[7:], "ls1." +
		strings.Repeat("A", 20_000)} {
		if p, err := decodeMetadata(7, s); err == nil || p.base != 7 || p.done != nil {
			t.Errorf("%.40q: %+v, %v, want an error and the offset alone", s, p, err)
		}
	}
}

// TestMetadataDense measures how far the map reaches: random completion needs the bitset, blocks the run-lengths.
func TestMetadataDense(t *testing.T) {
	random, blocks := progress{}, progress{}
	for o := int64(1); o < 24_000; o++ {
		if rand.IntN(2) == 0 {
			random.done = appendSpan(random.done, span{o, o + 1})
		}
		if o%500 > 20 {
			blocks.done = appendSpan(blocks.done, span{o, o + 1})
		}
	}
	for name, p := range map[string]progress{"random": random, "blocks": blocks} {
		s := p.encode(metadataLimit)
		got, err := decodeMetadata(0, s)
		if err != nil || !reflect.DeepEqual(got.done, p.done) {
			t.Errorf("%s: %d bytes keep %d of %d spans, %v", name, len(s), len(got.done), len(p.done), err)
		}
	}
}

// TestMetadataMost proves that mostEncoded is a bound, with the patterns and runs that take most.
func TestMetadataMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := progress{log: 1, starts: 1<<20 - 1, first: mostFirst}
		width := rapid.Int64Range(0, 12_000).Draw(t, "width")
		for seed := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)); len(p.done) == 0 || p.done[len(p.done)-1].to < width; {
			from := p.base + 1
			if n := len(p.done); n > 0 {
				from = p.done[n-1].to + 1 + seed.Int64N(2)
			}
			if from >= width {
				break
			}
			p.done = append(p.done, span{from, from + 1})
		}
		for i := range rapid.Int64Range(0, 20).Draw(t, "runs") {
			p.runs = append(p.runs, failedRuns{(i + 1) * (maxOffset / 32), 1<<31 - 1})
		}
		if n, most := len(p.encode(2*metadataLimit)), mostEncoded(width, len(p.runs)); n > most {
			t.Fatalf("%d bytes, called at most %d", n, most)
		}
	})
}

func FuzzMetadata(f *testing.F) {
	f.Add(int64(5), progress{base: 5, done: []span{{7, 9}, {100, 4000}}, runs: []failedRuns{{5, 2}}}.encode(metadataLimit))
	f.Add(int64(0), "ls1.AAAA")
	f.Fuzz(func(t *testing.T, base int64, s string) {
		base &= maxOffset
		check := func(p progress) {
			at := p.base
			for _, d := range p.done {
				if d.from < at || d.to <= d.from || d.to > maxOffset {
					t.Fatalf("spans %v above %d", p.done, p.base)
				}
				at = d.to
			}
		}
		p, err := decodeMetadata(base, s)
		if err == nil {
			check(p)
			if q, err := decodeMetadata(base, p.encode(metadataLimit)); err != nil || q.log != p.log || q.starts != p.starts ||
				!reflect.DeepEqual(q.suspect, p.suspect) {
				t.Fatalf("%+v became %+v, %v", p, q, err)
			}
		}
		if raw, err := base64.RawStdEncoding.DecodeString(s); err == nil { // past the checksum
			for _, suspects := range []bool{false, true} {
				if p, ok := parseMetadata(base, raw, suspects); ok {
					check(p)
				}
			}
		}
	})
}
