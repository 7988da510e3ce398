package preflight

import (
	"fmt"
	"slices"
	"strings"
)

// Verdicts of a preflight.
const (
	Better     = "better"     // right, and faster than NCCL
	NotBetter  = "not-better" // right, and not faster
	Right      = "right"      // right; not timed, because ranks share GPUs
	WrongData  = "wrong-data" // some sums were wrong
	Hang       = "hang"       // it did not end in its time
	Impossible = "impossible" // it cannot be done here
)

// Result is what was seen, and the verdict.
type Result struct {
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
	Hint    string `json:"hint,omitempty"` // what to do about it

	Ranks  int      `json:"ranks"`
	Calls  int      `json:"calls"`  // all-reduces in one CUDA graph
	Repeat int      `json:"repeat"` // replays that were timed
	Decide int      `json:"decide"` // bytes of the size that decides
	Class  string   `json:"class"`  // which SGLang picked, "" for none
	NVLink bool     `json:"nvlink"` // all GPUs are linked by it: the gate has nothing to do
	Shared bool     `json:"shared"` // several ranks on a GPU
	Rows   []Row    `json:"rows"`
	Where  []string `json:"where"` // where ranks were that did not end, as "rank 3: graph at 42 KiB"
	Log    []string `json:"log"`   // SGLang's warnings

	GPUs   []GPU    `json:"gpus"`
	Peer   [][]bool `json:"peer"` // which GPU reaches which, as torch has it from the driver
	Torch  string   `json:"torch"`
	CUDA   string   `json:"cuda"`
	NCCL   string   `json:"nccl"`
	Links  []Link   `json:"links"`  // as nvidia-smi has them
	Errors []string `json:"errors"` // ECC and Xid, during the run

	// The custom all-reduce is faster up to WinsTo bytes, and not from LosesFrom
	// on; 0 is nowhere. Between the two nothing was measured.
	WinsTo    int `json:"wins_to"`
	LosesFrom int `json:"loses_from"`
}

// GPU is one that the ranks saw.
type GPU struct {
	Name       string `json:"name"`
	Capability string `json:"capability"`
	Memory     int64  `json:"memory"` // bytes
}

// Row is one size.
type Row struct {
	Bytes   int     `json:"bytes"`
	Used    bool    `json:"used"`    // SGLang uses its all-reduce at this size
	Checked int     `json:"checked"` // comparisons of all elements, over all ranks
	Wrong   int     `json:"wrong"`   // elements that were wrong, over all ranks
	Custom  *Spread `json:"custom,omitempty"`
	NCCL    *Spread `json:"nccl,omitempty"`
	Profile *Spread `json:"nccl_profile,omitempty"` // under Task.Profile
}

// Spread is a time in microseconds a call, of the slowest rank: the median over
// the replays, and what nine and one of ten replays exceed.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

func spread(us []float64) *Spread {
	if len(us) == 0 {
		return nil
	}
	s := slices.Sorted(slices.Values(us))
	at := func(share float64) float64 { return s[int(share*float64(len(s)-1)+0.5)] }
	return &Spread{Median: at(0.5), Low: at(0.1), High: at(0.9)}
}

// judge makes a result of what the ranks said.
func (t Task) judge(m *ran) *Result {
	r := &Result{Ranks: t.Ranks, Calls: t.Calls, Repeat: t.Repeat, Decide: t.Decide, Rows: []Row{}, Where: []string{}, Log: []string{}, GPUs: []GPU{}, Peer: [][]bool{}, Links: []Link{}, Errors: []string{}}
	for _, size := range t.Sizes {
		r.Rows = append(r.Rows, Row{Bytes: size})
	}
	var (
		last  = map[int]line{} // the phase that each rank was heard of in
		ended = map[int]bool{}
		wrong *line
		died  *line
		class *line
	)
	for _, l := range m.lines {
		row := r.Row(l.Bytes)
		switch l.Kind {
		case "phase":
			last[l.Rank] = l
		case "done":
			ended[l.Rank] = true
		case "error":
			ended[l.Rank] = true
			if died == nil {
				died = &l
			}
		case "impossible":
			r.Verdict, r.Why = Impossible, l.Why+visible()
		case "machine":
			r.GPUs, r.Peer, r.Torch, r.CUDA, r.NCCL = l.GPUs, l.Peer, l.Torch, l.CUDA, l.NCCL
		case "log":
			if l.Rank == 0 && !slices.Contains(r.Log, l.Text) {
				r.Log = append(r.Log, l.Text)
			}
		case "class":
			if class == nil || l.Disabled {
				class = &l
			}
		case "used":
			row.Used = l.Used
		case "numbers":
			row.Checked++
			row.Wrong += l.Wrong
			if l.Wrong > 0 && wrong == nil {
				wrong = &l
			}
		case "time":
			if l.Name == "custom" {
				row.Custom = spread(l.US)
			} else {
				row.NCCL = spread(l.US)
			}
		}
	}
	r.Ranks = max(r.Ranks, len(last))
	r.Shared = len(r.GPUs) > 0 && r.Ranks > len(r.GPUs)
	if class != nil && !class.Disabled {
		r.Class = class.Name
		r.NVLink = class.Name == "CustomAllReduceV2" || class.FullNVLink != nil && *class.FullNVLink && !forced(r.Log) // V2 comes up nowhere else
	}
	for rank := range r.Ranks {
		if l, ok := last[rank]; ok && !ended[rank] {
			r.Where = append(r.Where, fmt.Sprintf("rank %d: %s", rank, l.where()))
		}
	}
	switch {
	case r.Verdict != "":
	case wrong != nil: // whatever came after it
		r.wrong(wrong)
	case died != nil:
		r.impossible(fmt.Sprintf("rank %d, %s: %s", died.Rank, last[died.Rank].where(), died.Text))
	case len(r.Where) > 0 && m.late && class == nil:
		r.Verdict, r.Why = Hang, fmt.Sprintf("the start alone did not end within %s; %s", t.Limit, strings.Join(r.Where, ", "))
		r.Hint = "a longer --timeout; if that does not help, sgpatch revert"
	case len(r.Where) > 0 && m.late:
		r.Verdict, r.Why = Hang, fmt.Sprintf("it did not end within %s; %s", t.Limit, strings.Join(r.Where, ", "))
		r.Hint = "this is no all-reduce for this machine: sgpatch revert"
	case len(r.Where) > 0:
		r.impossible(strings.Join(r.Where, ", ") + ": the process ended: " + m.reason())
	case len(last) == 0 && m.late:
		r.Verdict, r.Why, r.Hint = Hang, fmt.Sprintf("no rank started within %s", t.Limit), "a longer --timeout"
	case len(last) == 0:
		r.impossible(m.reason() + visible())
	case r.Class == "":
		r.off()
	default:
		r.compare()
	}
	return r
}

// Row is the row of a size; for one that was not asked for it is an empty one.
func (r *Result) Row(bytes int) *Row {
	for i := range r.Rows {
		if r.Rows[i].Bytes == bytes {
			return &r.Rows[i]
		}
	}
	return &Row{}
}

// forced says whether SGLang said that the gate is open, as the set has it say.
func forced(log []string) bool {
	return slices.ContainsFunc(log, func(s string) bool { return strings.HasPrefix(s, "SGLANG_FORCE_CUSTOM_AR_PCIE:") })
}

func (r *Result) wrong(l *line) {
	r.Verdict = WrongData
	r.Why = fmt.Sprintf("rank %d, %s, %s: %d elements are wrong; element %d is %s and should be %s", l.Rank, l.How, Size(l.Bytes), l.Wrong, l.At, l.Got, l.Want)
	if l.NaN > 0 {
		r.Why += fmt.Sprintf(" (%d were never written: the kernel did nothing there)", l.NaN)
	}
	r.Hint = "start no server with this: sgpatch revert, and sgpatch verify"
}

// knownErrors are errors whose words do not say what is the matter. The source
// of the first is a measurement: registering a buffer of an expandable segment.
var knownErrors = []struct{ has, means, hint string }{
	{"custom_all_reduce.cuh", "the allocator's expandable_segments break the registration of buffers", "take expandable_segments out of PYTORCH_CUDA_ALLOC_CONF"},
	{"invalid literal for int()", "SGLang reads CUDA_VISIBLE_DEVICES as numbers", "name the GPUs in CUDA_VISIBLE_DEVICES by number, not by UUID"},
	{"No module named 'torch'", "this interpreter has no torch", "name the one that starts the server: --python"},
	{"Cuda is not available", "torch sees no GPU", "nvidia-smi"},
	{"Duplicate GPU", "NCCL refuses several ranks on a GPU", "fewer --ranks"},
}

func (r *Result) impossible(why string) {
	r.Verdict, r.Why = Impossible, why
	for _, k := range knownErrors {
		if strings.Contains(why, k.has) {
			r.Why, r.Hint = k.means+": "+why, k.hint
		}
	}
}

// off is the verdict where SGLang does not use any.
func (r *Result) off() {
	r.Verdict, r.Why = Impossible, "SGLang switches its own all-reduce off here"
	for _, l := range r.Log {
		if strings.Contains(strings.ToLower(l), "custom") && strings.Contains(l, "disabled") {
			r.Why = l
		}
	}
	if strings.Contains(r.Why, "PCIe-only") {
		r.Hint = "sgpatch apply, then preflight again"
	}
}

// timed says whether NCCL was timed.
func (r *Result) timed() bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool { return row.NCCL != nil })
}

// compare gives the verdict where all numbers are right.
func (r *Result) compare() {
	checked := slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Checked > 0 })
	if !checked {
		r.Verdict, r.Why = Impossible, r.Class+" is used at none of these sizes"
		return
	}
	if !r.timed() {
		r.Verdict, r.Why = Right, fmt.Sprintf("all sums are right; %d ranks share %d GPUs, so times would say nothing", r.Ranks, len(r.GPUs))
		return
	}
	for _, row := range r.Rows {
		if row.Custom == nil || row.NCCL == nil || row.Custom.Median >= row.NCCL.Median {
			r.LosesFrom = row.Bytes
			break
		}
		r.WinsTo = row.Bytes
	}
	row := r.Row(r.Decide)
	switch {
	case row.Custom == nil || row.NCCL == nil:
		r.Verdict, r.Why = NotBetter, fmt.Sprintf("%s is not used at %s", r.Class, Size(r.Decide))
	case row.Custom.High < row.NCCL.Low:
		r.Verdict, r.Why = Better, r.times(row)
	case row.Custom.Median < row.NCCL.Median:
		r.Verdict, r.Why = NotBetter, r.times(row)+"; the difference is within the spread"
	default:
		r.Verdict, r.Why = NotBetter, r.times(row)
	}
}

func (r *Result) times(row *Row) string {
	return fmt.Sprintf("%.1f µs against NCCL's %.1f at %s", row.Custom.Median, row.NCCL.Median, Size(row.Bytes))
}

// addProfile adds NCCL's times under another environment; where NCCL is as fast
// as the custom all-reduce under it, that is the better way.
func (r *Result) addProfile(m *ran) {
	for _, l := range m.lines {
		if l.Kind == "time" && l.Name == "nccl" {
			r.Row(l.Bytes).Profile = spread(l.US)
		}
	}
	row := r.Row(r.Decide)
	if r.Verdict == Better && row.Profile == nil { // it may be the better way, and nobody knows
		r.Why += "; NCCL with other settings could not be timed"
	}
	if r.Verdict == Better && row.Profile != nil && row.Custom.High >= row.Profile.Low {
		r.Verdict = NotBetter
		r.Why += fmt.Sprintf("; but NCCL with other settings takes %.1f", row.Profile.Median)
		r.Hint = "sgpatch apply nccl-pcie"
	}
}
