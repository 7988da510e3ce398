// Package trial says whether something is better with a patch set than without,
// from the numbers of a benchmark that was run several times each way, and how
// sure that is. It is arithmetic: it runs nothing.
package trial

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
)

// Alpha is how often a set that makes no difference may be kept: at most that
// share of trials, by the rank test.
const Alpha = 0.05

// Verdicts of a trial.
const (
	Better       = "better"
	Worse        = "worse"
	NoDifference = "no-difference" // none that these runs could show
	TooFew       = "too-few"       // runs: no result could convince
	Void         = "void"          // a guard moved: the two ways did not do the same
	Failed       = "failed"        // the command
)

// Comparison is one metric without and with the set.
type Comparison struct {
	Name    string    `json:"name"`
	Higher  bool      `json:"higher"` // is better
	Without []float64 `json:"without"`
	With    []float64 `json:"with"`
	Ratio   Ratio     `json:"ratio"` // of the medians, with to without
	Low     Ratio     `json:"low"`   // 95 % interval of the ratio, by bootstrap
	High    Ratio     `json:"high"`
	P       float64   `json:"p"` // of the rank test, both sides

	apart bool // the 95 % interval of the difference of the medians is without 0
}

// Ratio is null in JSON, which knows only numbers, where there is none.
type Ratio float64

func (r Ratio) MarshalJSON() ([]byte, error) {
	if f := float64(r); math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(r))
}

// Compare works a comparison out.
func Compare(name string, higher bool, without, with []float64) Comparison {
	c := Comparison{Name: name, Higher: higher, Without: without, With: with, Ratio: Ratio(Median(with) / Median(without)), P: rankTest(without, with)}
	c.Low, c.High, c.apart = bootstrap(without, with)
	return c
}

// Verdict is Better or Worse only if the rank test and the interval agree on it:
// that of the difference, which numbers that are 0 or negative have as well.
func (c Comparison) Verdict() string {
	switch {
	case fewest(len(c.Without), len(c.With)) > Alpha:
		return TooFew
	case c.P > Alpha || !c.apart:
		return NoDifference
	case (Median(c.With) > Median(c.Without)) == c.Higher:
		return Better
	}
	return Worse
}

// Median of some numbers, NaN of none.
func Median(all []float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(all))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// fewest is the smallest p that the rank test can give for so many runs.
func fewest(n, m int) float64 { return min(1, 2/choose(n+m, n)) }

func choose(n, k int) float64 {
	c := 1.0
	for i := range k {
		c = c * float64(n-i) / float64(i+1)
	}
	return c
}

// rankTest is Wilcoxon's rank sum test (Mann and Whitney's U), both sides and
// exact, ties included: the share of all ways to deal the ranks to the two sides
// whose sum lies at least as far from the middle.
func rankTest(a, b []float64) float64 {
	ranks := doubledRanks(slices.Concat(a, b))
	sum, total := 0, 0
	for i, r := range ranks {
		total += r
		if i < len(a) {
			sum += r
		}
	}
	// ways[k][s]: how many choices of k ranks have the sum s
	ways := make([][]float64, len(a)+1)
	for k := range ways {
		ways[k] = make([]float64, total+1)
	}
	ways[0][0] = 1
	for _, r := range ranks {
		for k := len(a); k > 0; k-- {
			for s := total; s >= r; s-- {
				ways[k][s] += ways[k-1][s-r]
			}
		}
	}
	n, all := len(ranks), choose(len(ranks), len(a))
	away := func(s int) int { d := s*n - total*len(a); return max(d, -d) } // from the middle, times n
	extreme := 0.0
	for s, w := range ways[len(a)] {
		if away(s) >= away(sum) {
			extreme += w
		}
	}
	return min(1, extreme/all)
}

// doubledRanks are twice the ranks, so that those of ties are whole numbers.
func doubledRanks(all []float64) []int {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		switch {
		case all[i] < all[j]:
			return -1
		case all[i] > all[j]:
			return 1
		}
		return 0
	})
	ranks := make([]int, len(all))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && all[order[j]] == all[order[i]] {
			j++
		}
		for _, k := range order[i:j] {
			ranks[k] = i + 1 + j // the mean of i+1 … j, doubled
		}
		i = j
	}
	return ranks
}

const resamples = 2000

// bootstrap is the 95 % interval of the ratio of the medians, and says whether that
// of their difference is without 0. The same numbers give the same answer.
func bootstrap(a, b []float64) (low, high Ratio, apart bool) {
	h := fnv.New64a()
	fmt.Fprint(h, a, b)
	dice := rand.New(rand.NewPCG(h.Sum64(), 1))
	draw := func(from []float64) float64 {
		some := make([]float64, len(from))
		for i := range some {
			some[i] = from[dice.IntN(len(from))]
		}
		return Median(some)
	}
	if len(a) == 0 || len(b) == 0 {
		return Ratio(math.NaN()), Ratio(math.NaN()), false
	}
	ratios, differences := make([]float64, resamples), make([]float64, resamples)
	for i := range ratios {
		with, without := draw(b), draw(a)
		ratios[i], differences[i] = with/without, with-without
	}
	slices.Sort(ratios)
	slices.Sort(differences)
	first, last := resamples/40, resamples-1-resamples/40
	return Ratio(ratios[first]), Ratio(ratios[last]), differences[first] > 0 || differences[last] < 0
}
