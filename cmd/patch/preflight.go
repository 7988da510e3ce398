package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sgpatch/patcher"
	"sgpatch/patcher/install"
	"sgpatch/verify"
	"sgpatch/verify/preflight"
)

// gpuOptions are the flags of preflight.
type gpuOptions struct {
	ranks, hidden, calls, repeat int
	rows                         []int
	limit                        time.Duration
	writeCap                     bool
}

func preflightFlags(f *pflag.FlagSet, o *options) {
	f.IntVar(&o.gpu.ranks, "ranks", 0, "`N` ranks instead of one for each visible GPU; more share GPUs, and show right sums only")
	f.IntVar(&o.gpu.hidden, "hidden", 7168, "numbers in a row, `N`: the model's hidden size")
	f.IntSliceVar(&o.gpu.rows, "rows", []int{1, 3, 6, 12}, "rows of a tensor, `N,…`; without it 512 KiB and 1 MiB as well")
	f.IntVar(&o.gpu.calls, "calls", 122, "all-reduces in a row, `N`, as a verify pass has them")
	f.IntVar(&o.gpu.repeat, "repeat", 30, "timed repeats, `N`")
	f.DurationVar(&o.gpu.limit, "timeout", time.Minute, "time for all of it, `DUR`, and once more for NCCL with other settings; what has not ended then hangs")
	f.BoolVar(&o.gpu.writeCap, "write-cap", false, "set the size up to which it is faster as the set's limit, if it is better")
}

const capName = "SGLANG_FORCE_CUSTOM_AR_PCIE_MAX_BYTES"

// largest is what SGLang's all-reduce has buffers for, in bytes (8 MiB).
const largest = 8 << 20

func (o *options) task(python string, profile []string) (preflight.Task, error) {
	g := o.gpu
	t := preflight.Task{Python: python, Ranks: g.ranks, Calls: g.calls, Repeat: g.repeat, Limit: g.limit, Profile: profile, Scratch: patcher.Scratch}
	switch {
	case len(o.args) > 0:
		return t, usagef("preflight takes no argument: %s", o.args[0])
	case g.ranks < 0 || g.ranks == 1 || g.ranks > 64:
		return t, usagef("--ranks %d: two or more", g.ranks)
	case g.calls < 1 || g.calls > 10000 || g.repeat < 2 || g.repeat > 200:
		return t, usagef("--calls %d --repeat %d: calls are 1 to 10000, repeats 2 to 200", g.calls, g.repeat)
	case g.hidden < 8 || g.hidden%8 != 0 || g.hidden > largest:
		return t, usagef("--hidden %d: a multiple of 8, up to %d", g.hidden, largest) // 16 bytes: what the kernel takes
	case g.limit < time.Second:
		return t, usagef("--timeout %s: a second at least", g.limit)
	case len(g.rows) == 0:
		return t, usagef("--rows: one number at least")
	}
	for _, n := range g.rows {
		size := n * g.hidden * 2
		if n < 1 || n > largest || size > largest {
			return t, usagef("--rows %d: %d rows of %d are not 1 to %d bytes", n, n, g.hidden, largest)
		}
		t.Sizes = append(t.Sizes, size)
	}
	t.Decide = t.Sizes[min(1, len(t.Sizes)-1)] // 3 rows: what a verify pass of 3 tokens reduces
	if !o.flags.Changed("rows") {
		t.Sizes = append(t.Sizes, 512<<10, 1<<20)
	}
	if g.writeCap { // the limit that is in force would hide what lies beyond it
		t.Env = []string{capName + "=" + strconv.Itoa(largest)}
	}
	slices.Sort(t.Sizes)
	t.Sizes = slices.Compact(t.Sizes)
	return t, nil
}

func preflightCommand(ctx context.Context, o *options) (*Report, error) {
	r := newReport("preflight")
	if _, err := o.task("", nil); err != nil {
		return r, err
	}
	p, err := o.open(ctx, r, install.Query{Here: os.Geteuid() != 0}) // the ranks of root start in /
	if err != nil {
		return r, err
	}
	if p.site.In.Python == "" {
		return r, &patcher.RefusedError{Code: "no-python", Path: p.site.In.Root, Message: "preflight runs SGLang, and no interpreter is known", Hint: "name the one that starts the server: --python PATH"}
	}
	p.copies(r)
	for _, v := range p.site.Views() {
		if v.Enabled {
			r.set(v, states(p.site, v))
		}
	}
	task, err := o.task(p.site.In.Python, p.profile())
	if err != nil {
		return r, err
	}
	m, err := preflight.Run(ctx, task)
	if err != nil {
		return r, err
	}
	r.Measurements = &measurements{Result: m}
	severity := "note"
	if m.Verdict != preflight.Better && m.Verdict != preflight.Right {
		r.Exit, severity = exitVerdict, "error"
	}
	r.find(verify.Finding{Code: m.Verdict, Severity: severity, Message: m.Why, Hint: m.Hint})
	for _, e := range m.Errors {
		r.find(verify.Finding{Code: "gpu-error", Severity: "error", Message: "during the run: " + e})
		r.Exit = exitVerdict
	}
	if o.gpu.writeCap {
		err = o.setCap(ctx, r, p)
	}
	o.record(r, patcher.Goal{Command: "preflight", Result: m.Verdict + ": " + m.Why})
	return r, err
}

// profile is the environment of nccl-pcie, unless that is in force already.
func (p *place) profile() (all []string) {
	for _, s := range pick(p.sets, []string{"nccl-pcie"}) {
		for _, e := range s.Env {
			if p.site.In.Answer.Env[e.Name] != e.Value {
				all = append(all, e.Name+"="+e.Value)
			}
		}
	}
	return all
}

// setCap writes the size up to which the custom all-reduce was faster into the
// entry of the set that opens the gate.
func (o *options) setCap(ctx context.Context, r *Report, p *place) error {
	m := r.Measurements.Result
	set := p.site.View(defaultSet)
	switch {
	case len(m.Errors) > 0:
		r.find(verify.Finding{Code: "cap", Severity: "note", Message: "no limit is written: a GPU reported errors"})
		return nil
	case m.Verdict == preflight.Better && m.WinsTo == 0:
		r.find(verify.Finding{Code: "cap", Severity: "note", Message: "no limit is written: it is not faster at the smallest size, and a limit has no lower end"})
		return nil
	case m.Verdict != preflight.Better:
		r.find(verify.Finding{Code: "cap", Severity: "note", Message: "no limit is written: it is not better here"})
		return nil
	case set.NoEnv: // an entry would open the gate for all that this interpreter starts
		r.find(verify.Finding{Code: "cap", Severity: "note", Message: fmt.Sprintf("no limit is written: %s is in place without its entry; set %s=%d where the other variable is set", defaultSet, capName, m.WinsTo)})
		return nil
	case !set.Enabled:
		r.find(verify.Finding{Code: "cap", Severity: "note", Message: "no limit is written: " + defaultSet + " is not in place", Hint: "sgpatch apply"})
		return nil
	}
	checker := o.checker(ctx, p)
	goal := patcher.Goal{
		Command: "apply", Apply: []string{defaultSet}, Named: true, Env: map[string]string{capName: strconv.Itoa(m.WinsTo)}, Told: o.told(), Reason: "preflight: faster up to " + preflight.Size(m.WinsTo),
		Prove: func(proof patcher.Proof) error { return checker.Prove(ctx, proof) },
	}
	out, err := patcher.Converge(ctx, p.site, goal, patcher.Options{Wait: o.wait})
	r.Changed = append(r.Changed, out.Changed...)
	r.Findings = append(r.Findings, out.Findings...)
	if err == nil {
		r.find(verify.Finding{Code: "cap", Severity: "note", Message: fmt.Sprintf("%s=%d is set; it counts from the server's next start", capName, m.WinsTo)})
		if given, ok := lookupEnv(capName); ok && given != strconv.Itoa(m.WinsTo) {
			r.find(verify.Finding{Code: "cap", Severity: "warning", Message: fmt.Sprintf("a server started from here has %s=%s, which comes before the entry", capName, given), Hint: "unset " + capName})
		}
	}
	return err
}

// measured prints what a preflight saw.
func (p printer) measured(m *preflight.Result) {
	if len(m.GPUs) > 0 {
		p.line("GPUs     %d x %s (%s), torch %s, CUDA %s, NCCL %s", len(m.GPUs), m.GPUs[0].Name, m.GPUs[0].Capability, m.Torch, orDash(m.CUDA), orDash(m.NCCL))
	}
	linked := ""
	if m.NVLink {
		linked = "; all are linked by NVLink, and the gate has nothing to do"
	}
	p.line("class    %s, %d ranks%s", orDash(m.Class), m.Ranks, linked)
	for i, row := range m.Peer {
		for j, can := range row {
			if !can && i < j {
				p.line("no peer  GPU %d and GPU %d", i, j)
			}
		}
	}
	for _, l := range m.Links {
		if p.verbose || l.Width < l.WidthMax {
			p.line("link     GPU %d %s: PCIe %d x%d (can do %d x%d)", l.GPU, l.Bus, l.Gen, l.Width, l.GenMax, l.WidthMax)
		}
	}
	p.rows(m)
	if p.verbose {
		for _, l := range m.Log {
			p.line("log      %s", l)
		}
	}
}

func (p printer) rows(m *preflight.Result) {
	if !slices.ContainsFunc(m.Rows, func(r preflight.Row) bool { return r.Checked > 0 || r.NCCL != nil }) {
		return
	}
	most := 0.0
	for _, row := range m.Rows {
		for _, s := range []*preflight.Spread{row.Custom, row.NCCL, row.Profile} {
			if s != nil {
				most = max(most, s.Median)
			}
		}
	}
	p.line("")
	for _, row := range m.Rows {
		sums := "not used"
		switch {
		case row.Wrong > 0:
			sums = fmt.Sprintf("%d WRONG", row.Wrong)
		case row.Checked > 0:
			sums = "right"
		}
		p.line("%9s  %s", preflight.Size(row.Bytes), sums)
		p.bar("custom", row.Custom, most)
		p.bar("NCCL", row.NCCL, most)
		p.bar("nccl-pcie", row.Profile, most)
	}
	if row := m.Row(m.Decide); row.Custom != nil && row.NCCL != nil {
		custom, nccl := row.Custom.Median*float64(m.Calls)/1000, row.NCCL.Median*float64(m.Calls)/1000
		p.line("\n%d calls of %s: %.2f ms, with NCCL %.2f ms", m.Calls, preflight.Size(m.Decide), custom, nccl)
		switch {
		case m.WinsTo == 0:
			p.line("NCCL is as fast at the smallest size")
		case m.LosesFrom == 0:
			p.line("faster than NCCL at all sizes measured, up to %s", preflight.Size(m.WinsTo))
		default:
			p.line("faster than NCCL up to %s, and not from %s on", preflight.Size(m.WinsTo), preflight.Size(m.LosesFrom))
		}
	}
}

const barWidth = 40

// bar draws one time. Its length is in proportion to the longest.
func (p printer) bar(name string, s *preflight.Spread, most float64) {
	if s == nil {
		return
	}
	n := max(1, int(s.Median/most*barWidth+0.5))
	p.line("           %-9s %-*s %8.1f µs  (%.1f to %.1f)", name, barWidth, strings.Repeat("#", n), s.Median, s.Low, s.High)
}
