package trial

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestRankTest holds p against published tables and against counting by hand.
func TestRankTest(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		p    float64
	}{
		{[]float64{1, 2, 3}, []float64{4, 5, 6}, 2.0 / 20},
		{[]float64{1, 2, 3, 4, 5, 6}, []float64{7, 8, 9, 10, 11, 12}, 2.0 / 924},
		{[]float64{1, 2, 3, 4}, []float64{2.5, 5, 6, 7}, 8.0 / 70},
		{[]float64{1, 4}, []float64{2, 3}, 1},
		{[]float64{5, 5, 5}, []float64{5, 5, 5}, 1},
		{[]float64{1, 1, 2}, []float64{2, 3, 3}, 4.0 / 20}, // sums 7 (two ways) and as far above
	} {
		if got := rankTest(c.a, c.b); math.Abs(got-c.p) > 1e-12 || math.Abs(rankTest(c.b, c.a)-got) > 1e-12 {
			t.Errorf("%v %v: %v, want %v", c.a, c.b, got, c.p)
		}
	}
}

func TestVerdict(t *testing.T) {
	low, high := []float64{80, 81, 82, 80.5, 81.5, 82.5}, []float64{90, 91, 92, 90.5, 91.5, 92.5}
	for _, c := range []struct {
		higher        bool
		without, with []float64
		want          string
	}{
		{true, low, high, Better}, {true, high, low, Worse}, {false, low, high, Worse}, {false, high, low, Better},
		{true, low, low, NoDifference}, {true, low[:3], high[:3], TooFew}, {true, low[:1], high[:1], TooFew}, {true, []float64{0, 0, 0, 0, 0, 0}, high, Better}, {false, []float64{0, 0, 0, 0, 0, 0}, high, Worse}, {true, high, []float64{0, 0, 0, 0, 0, 0}, Worse},
	} {
		if got := Compare("m", c.higher, c.without, c.with).Verdict(); got != c.want {
			t.Errorf("%v %v %v: %s", c.higher, c.without, c.with, got)
		}
	}
	a, b := Compare("m", true, low, high), Compare("m", true, low, high)
	if a.Low != b.Low || a.High != b.High || a.Low <= 1.08 || a.High >= 1.17 || a.Ratio < a.Low || a.Ratio > a.High {
		t.Errorf("%+v", a)
	}
}

// TestPower simulates trials: nothing that makes no difference may be kept more
// often than Alpha, and what makes a difference is to be found. The figures are
// those of docs/commands.md.
func TestPower(t *testing.T) {
	dice := rand.New(rand.NewPCG(7, 11))
	share := func(runs int, effect, noise float64, draw func() float64) float64 {
		kept, trials := 0, 1000
		if effect > 0 {
			trials = 300 // the interval is worked out for nearly all of them
		}
		for range trials {
			var without, with []float64
			for range runs {
				without = append(without, 80*(1+noise*draw()))
				with = append(with, 80*(1+effect)*(1+noise*draw()))
			}
			if rankTest(without, with) <= Alpha && Compare("m", true, without, with).Verdict() == Better {
				kept++
			}
		}
		return float64(kept) / float64(trials)
	}
	normal := dice.NormFloat64
	outliers := func() float64 { // one in ten runs is slow
		if dice.IntN(10) == 0 {
			return -5 * math.Abs(dice.NormFloat64())
		}
		return dice.NormFloat64()
	}
	for name, c := range map[string]struct {
		got      float64
		min, max float64
	}{
		"A/A, 6 runs":                       {share(6, 0, 0.02, normal), 0, Alpha},
		"A/A, 6 runs, outliers":             {share(6, 0, 0.02, outliers), 0, Alpha},
		"A/A, 12 runs":                      {share(12, 0, 0.05, normal), 0, Alpha},
		"A/A, 4 runs":                       {share(4, 0, 0.02, normal), 0, Alpha},
		"5 % better, 2 % noise, 6 runs":     {share(6, 0.05, 0.02, normal), 0.90, 1},
		"3 % better, 2 % noise, 6 runs":     {share(6, 0.03, 0.02, normal), 0.45, 0.65},
		"3 % better, 2 % noise, 12 runs":    {share(12, 0.03, 0.02, normal), 0.75, 0.95},
		"5 % better, outliers, 6 runs":      {share(6, 0.05, 0.02, outliers), 0.55, 0.85},
		"10 % worse is never called better": {share(6, -0.10, 0.02, normal), 0, 0},
	} {
		t.Logf("%s: %.3f", name, c.got)
		if c.got < c.min || c.got > c.max {
			t.Errorf("%s: %.3f is not in %.2f to %.2f", name, c.got, c.min, c.max)
		}
	}
}

// TestOddNumbers: what benchmarks print may be negative, zero or no number.
func TestOddNumbers(t *testing.T) {
	low, high := []float64{-9, -8.9, -9.1, -9.2}, []float64{-5, -5.1, -5.2, -4.9}
	for _, c := range []struct {
		higher        bool
		without, with []float64
		want          string
	}{
		{true, low, high, Better}, {true, high, low, Worse}, {false, low, high, Worse}, {false, high, low, Better},
		{true, low, []float64{5, 5.1, 5.2, 4.9}, Better}, {false, low, []float64{5, 5.1, 5.2, 4.9}, Worse},
	} {
		if got := Compare("m", c.higher, c.without, c.with).Verdict(); got != c.want {
			t.Errorf("%v %v %v: %s", c.higher, c.without, c.with, got)
		}
	}
	for _, c := range []struct {
		without, with []float64
		want          string
	}{
		{low, high, "m: -5.05 with it, -9.05 without: +44.2 % (95 %: +42."},
		{[]float64{0, 0, 0, 0}, []float64{5, 5, 5, 5}, "m: 5 with it, 0 without, p = 0.029, 4 and 4 runs"},
	} {
		if got := Compare("m", true, c.without, c.with).Says(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s", got)
		}
	}
	m, err := ParseMetric(`m=^v: (\S+)`)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"nan", "NaN", "inf", "-Infinity"} {
		if v, ok := m.Read([]byte("v: 5\nv: " + text + "\n")); ok {
			t.Errorf("%s: read as %v", text, v)
		}
	}
	g, err := ParseGuard(`errors=^Errors: (\d+)`)
	if err != nil {
		t.Fatal(err)
	}
	zero := []float64{0, 0, 0, 0}
	r := Result{Metrics: []Comparison{Compare("m", true, low, high)}, Guards: []Comparison{Compare("errors", true, zero, zero)}}
	if r.Judge([]Metric{g}); r.Verdict != Better {
		t.Errorf("no errors either way: %s, %s", r.Verdict, r.Why)
	}
	r = Result{Metrics: []Comparison{Compare("m", true, low, high)}, Guards: []Comparison{Compare("errors", true, zero, []float64{2, 2, 2, 2})}}
	if r.Judge([]Metric{g}); r.Verdict != Void {
		t.Errorf("errors with it: %s", r.Verdict)
	}
}

func TestOrder(t *testing.T) {
	if got := Order(4); !slices.Equal(got, []bool{false, true, true, false, false, true, true, false}) {
		t.Error(got)
	}
}

// TestKnown: the lines as SGLang's sources print them, with numbers put in.
func TestKnown(t *testing.T) {
	serving := "============ Serving Benchmark Result ============\nOutput token throughput (tok/s):         1234.56   \nPeak output token throughput (tok/s):    9999.00   \nAccept length:                           3.25      \n"
	server := "batch size: 1\noutput throughput: 81.50 tok/s\nlast generation throughput: 82.00 tok/s\noutput throughput: 82.25 tok/s\n"
	one := "Prefill. latency: 0.12345 s, throughput:   100.00 token/s\nDecode 0. Batch size: 1, latency: 0.01200 s, throughput:     83.33 token/s\nDecode.  median latency: 0.01220 s, median throughput:     81.97 token/s\nTotal. latency:  1.000 s, throughput:    90.00 token/s\n"
	for i, c := range []struct {
		text string
		want float64
	}{{serving, 1234.56}, {server, 82.25}, {one, 81.97}} {
		for j, pattern := range Known {
			m, err := ParseMetric(pattern)
			if err != nil {
				t.Fatal(err)
			}
			got, ok := m.Read([]byte(c.text))
			if ok != (i == j) || (ok && got != c.want) {
				t.Errorf("%s in %q: %v %v", pattern, c.text, got, ok)
			}
		}
	}
	g, err := ParseGuard(KnownGuard)
	if v, ok := g.Read([]byte(serving)); err != nil || !ok || v != 3.25 || g.Moves != 0.02 {
		t.Errorf("%v %v %v %v", v, ok, err, g.Moves)
	}
}

func TestMetrics(t *testing.T) {
	for s, higher := range map[string]bool{`a=x (\d+)`: true, `a=x (\d+):higher`: true, `a=x (\d+):lower`: false} {
		if m, err := ParseMetric(s); err != nil || m.Higher != higher || m.Name != "a" {
			t.Errorf("%s: %+v %v", s, m, err)
		}
	}
	for _, s := range []string{"", "a", "=x", "a=", "a=x", "a=(", "a=:lower"} {
		if m, err := ParseMetric(s); err == nil {
			t.Errorf("%s: %+v", s, m)
		}
	}
	m, _ := ParseMetric(`a=v: ([0-9.,]+)`)
	for text, want := range map[string]float64{"v: 1,234.5\n": 1234.5, "v: 1\nv: 2\n": 2, "v: 3\nv: .\n": 3} {
		if got, ok := m.Read([]byte(text)); !ok || got != want {
			t.Errorf("%q: %v %v", text, got, ok)
		}
	}
	if _, ok := m.Read([]byte("nothing")); ok {
		t.Error("found in nothing")
	}
}

// TestLines: what bench_serving and bench_one_batch append to their result files
// are lines of JSON; the last one with the field counts.
func TestLines(t *testing.T) {
	text := []byte("{\"output_throughput\": 80.5}\nnoise {\n[1]\n{\"output_throughput\": 82.25, \"a\": {\"b\": 3, \"c\": \"x\"}}\n{\"other\": 1}\nnull\n")
	for s, want := range map[string]float64{"v=json:output_throughput": 82.25, "v=json:a.b:lower": 3, "v=json:other": 1, "v=json:a": -1, "v=json:a.c": -1, "v=json:a.b.c": -1, "v=json:none": -1} {
		m, err := ParseMetric(s)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := m.Read(text)
		if ok != (want >= 0) || (ok && got != want) || m.Higher == strings.HasSuffix(s, "lower") {
			t.Errorf("%s: %v %v", s, got, ok)
		}
	}
	g, err := ParseGuard("v=json:a.b:5")
	if v, ok := g.Read(text); err != nil || !ok || v != 3 || g.Moves != 0.05 {
		t.Errorf("%v %v %v", v, ok, err)
	}
	for _, s := range []string{"v=json:", "v=json:a.", "v=json:.b"} {
		if _, err := ParseMetric(s); err == nil {
			t.Error(s)
		}
	}
}

func TestJudge(t *testing.T) {
	up := Compare("tok/s", true, []float64{1, 1.1, 1.2, 1.3, 1.05, 1.15}, []float64{2, 2.1, 2.2, 2.3, 2.05, 2.15})
	g, _ := ParseGuard("accept=x([0-9.]+):5")
	for _, c := range []struct {
		without, with float64
		want          string
	}{{3, 3.1, Better}, {3, 2.5, Void}, {0, 0, Better}} {
		r := &Result{Runs: 6, Metrics: []Comparison{up}, Guards: []Comparison{Compare("accept", true, []float64{c.without}, []float64{c.with})}}
		if r.Judge([]Metric{g}); r.Verdict != c.want {
			t.Errorf("%v: %s: %s", c, r.Verdict, r.Why)
		}
	}
	r := &Result{Runs: 2, Metrics: []Comparison{Compare("m", true, []float64{1, 2}, []float64{3, 4})}}
	if r.Judge(nil); r.Verdict != TooFew || !strings.Contains(r.Why, "no result could convince") {
		t.Errorf("%+v", r)
	}
}
