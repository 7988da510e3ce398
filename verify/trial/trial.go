package trial

import (
	"fmt"
	"math"
	"strings"
)

// Result is a trial and its verdict.
type Result struct {
	Verdict string       `json:"verdict"`
	Why     string       `json:"why"`
	Sets    []string     `json:"sets"`
	Runs    int          `json:"runs"` // of each way
	Kept    bool         `json:"kept"`
	Metrics []Comparison `json:"metrics"` // the first one decides
	Guards  []Comparison `json:"guards"`
	Seconds []float64    `json:"seconds"` // that each run took, in their order
}

// Order is the ways of all runs, true with the set: A B B A A B B A …, so that
// what changes slowly (heat, other users) weighs on both alike.
func Order(runs int) []bool {
	all := make([]bool, 0, 2*runs)
	for i := range runs {
		first := i%2 == 1
		all = append(all, first, !first)
	}
	return all
}

// Judge gives the verdict of metrics and guards.
func (r *Result) Judge(guards []Metric) {
	if r.Verdict != "" {
		return
	}
	m := r.Metrics[0]
	for i, g := range r.Guards {
		if moved := math.Abs(float64(g.Ratio) - 1); !(moved <= guards[i].Moves) && Median(g.With) != Median(g.Without) { // both may be 0
			r.Verdict, r.Why = Void, fmt.Sprintf("%s is %.4g without and %.4g with it: the two ways did not do the same", g.Name, Median(g.Without), Median(g.With))
			return
		}
	}
	r.Verdict, r.Why = m.Verdict(), m.Says()
	if r.Verdict == TooFew {
		r.Why += fmt.Sprintf("; with %d runs each way no result could convince", r.Runs)
	}
}

// Says is a comparison in one line.
func (c Comparison) Says() string {
	s := fmt.Sprintf("%s: %.4g with it, %.4g without", c.Name, Median(c.With), Median(c.Without))
	if without := Median(c.Without); without != 0 {
		percent := func(r Ratio) float64 { return float64(r-1) * math.Copysign(100, without) } // the ratio of negative numbers grows as they fall
		low, high := percent(c.Low), percent(c.High)
		s += fmt.Sprintf(": %+.1f %% (95 %%: %+.1f to %+.1f)", percent(c.Ratio), min(low, high), max(low, high))
	}
	return s + fmt.Sprintf(", p = %.2g, %d and %d runs", c.P, len(c.With), len(c.Without))
}

// Short is the result for a record.
func (r *Result) Short() string { return strings.TrimSpace(r.Verdict + ": " + r.Why) }
