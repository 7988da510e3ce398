package preflight

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sgpatch/verify/smi"
)

// standIn is an interpreter that says what ranks would. SAY stands for it.
const standIn = `#!/usr/bin/env python3
import json, os, subprocess, sys, time
task = json.loads(sys.argv[-1])
assert sys.argv[1:4] == ["-m", "torch.distributed.run", "--standalone"] and "--no-python" in sys.argv, sys.argv
ranks = sys.argv[4].split("=")[1]
def say(kind, rank=0, **what):
    sys.stdout.write("noise" * (rank % 2) + task["mark"] + " " + json.dumps(dict(what, kind=kind, rank=rank)) + "\n")
    sys.stdout.flush()
def phase(name, ranks=(0, 1), **where):
    for r in ranks: say("phase", r, name=name, **where)
def begin():
    phase("set up")
    say("machine", gpus=[dict(name="GPU", capability="12.0", memory=1)] * 2, peer=[[True, True], [True, True]], torch="2", cuda="13", nccl="2")
    for r in 0, 1: say("class", r, name="CustomAllreduce", disabled=False, full_nvlink=True)
def numbers(wrong=0):
    for size in task["sizes"]:
        say("used", bytes=size, used=True)
        for r in 0, 1: say("numbers", r, bytes=size, how="graph", turn=3, wrong=wrong * r, at=4, got="nan", want="-5.0", nan=wrong * r)
def times(name, *us):
    for size, t in zip(task["sizes"], us): say("time", name=name, bytes=size, us=[t - 1, t, t, t, t + 1])
def done():
    for r in 0, 1: say("done", r)
print("banner of a library", task["mark"][:9])
`

func scratch(int, int) (string, func(), error) {
	dir, err := os.MkdirTemp("", "")
	return dir, func() { os.RemoveAll(dir) }, err
}

// run measures with a stand-in that says this.
func run(t *testing.T, say string, change ...func(*Task)) *Result {
	t.Helper()
	python := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(python, []byte(standIn+say), 0o755); err != nil {
		t.Fatal(err)
	}
	task := Task{Python: python, Sizes: []int{14336, 43008, 1 << 20}, Decide: 43008, Calls: 122, Repeat: 5, Limit: 30 * time.Second, Scratch: scratch}
	for _, c := range change {
		c(&task)
	}
	r, err := Run(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVerdicts(t *testing.T) {
	log := "for r in 0, 1: say('log', r, text='CustomAllreduce is disabled because it is not supported on more than two PCIe-only GPUs.')\n"
	for name, c := range map[string]struct{ say, verdict, why string }{
		"better":         {"begin(); numbers(); times('custom', 9, 12, 90); times('nccl', 30, 31, 60); done()", Better, "12.0 µs against NCCL's 31.0 at 42 KiB"},
		"slower":         {"begin(); numbers(); times('custom', 9, 40, 90); times('nccl', 30, 31, 60); done()", NotBetter, "40.0 µs against NCCL's 31.0"},
		"spread":         {"begin(); numbers(); times('custom', 9, 30, 90); times('nccl', 30, 31, 60); done()", NotBetter, "within the spread"},
		"wrong":          {"begin(); numbers(7); times('custom', 1, 1, 1); times('nccl', 30, 31, 60); done()", WrongData, "rank 1, graph, 14 KiB: 7 elements are wrong; element 4 is nan and should be -5.0 (7 were never written: the kernel did nothing there)"},
		"wrong and hang": {"begin(); numbers(7); phase('time custom', bytes=43008); time.sleep(60)", WrongData, "7 elements"},
		"off":            {"phase('set up')\n" + log + "for r in 0, 1: say('class', r, name='CustomAllreduce', disabled=True)\ndone()", Impossible, "more than two PCIe-only GPUs"},
		"off on one":     {"begin(); say('class', 1, name='CustomAllreduce', disabled=True); done()", Impossible, "switches its own all-reduce off"},
		"hang":           {"begin(); phase('graph', [1], bytes=43008); say('done', 0); time.sleep(60)", Hang, "it did not end within 2s; rank 1: graph at 42 KiB"},
		"slow start":     {"phase('import sglang'); time.sleep(60)", Hang, "the start alone did not end within 2s; rank 0: import sglang, rank 1: import sglang"},
		"no start":       {"time.sleep(60)", Hang, "no rank started within 2s"},
		"died":           {"begin(); phase('capture', [1], bytes=43008); say('done', 0); sys.exit('Signal 11 (SIGSEGV) received by PID 7')", Impossible, "rank 1: capture at 42 KiB: the process ended: Signal 11"},
		"error":          {"begin(); phase('capture', bytes=43008); say('error', 1, text='RuntimeError: Failed: Cuda error custom_all_reduce.cuh:508 invalid argument'); sys.exit(1)", Impossible, "expandable_segments break"},
		"no torch":       {"sys.exit(\"python3: Error while finding module specification for 'torch.distributed.run' (ModuleNotFoundError: No module named 'torch')\")", Impossible, "this interpreter has no torch"},
		"no GPU":         {"say('impossible', why='torch sees no GPU'); sys.exit(0)", Impossible, "torch sees no GPU"},
		"none used":      {"begin()\nfor s in task['sizes']: say('used', bytes=s, used=False)\ntimes('nccl', 1, 2, 3); done()", Impossible, "used at none of these sizes"},
		"decides unused": {"begin(); say('used', bytes=14336, used=True); say('numbers', bytes=14336, wrong=0); times('custom', 9); times('nccl', 30, 31, 60); done()", NotBetter, "not used at 42 KiB"},
		"shared":         {"begin(); numbers(); phase('set up', range(4))\nfor r in range(4): say('done', r)", Right, "4 ranks share 2 GPUs"},
		"garbage":        {"print(task['mark'], '{'); print(task['mark']); say('time', name='custom', bytes=3, us=[]); say('numbers', -4, bytes=-1, wrong=0); say('phase', 10**9, name='x'); print('x' * 100000)", Impossible, ""},
		"a lot":          {"begin()\nfor _ in range(4000): print('y' * 10000)\nprint('z' * 100000, end='')\nprint('\\n', end=''); numbers(); times('custom', 9, 12, 90); times('nccl', 30, 31, 60); done()", Better, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, c.say, func(task *Task) {
				if strings.Contains(c.say, "sleep") {
					task.Limit = 2 * time.Second
				}
			})
			if r.Verdict != c.verdict || !strings.Contains(r.Why, c.why) {
				t.Errorf("%s: %s", r.Verdict, r.Why)
			}
		})
	}
}

func TestCrossover(t *testing.T) {
	for say, want := range map[string][2]int{
		"times('custom', 9, 12, 90); times('nccl', 30, 31, 60)": {43008, 1 << 20},
		"times('custom', 9, 12, 20); times('nccl', 30, 31, 60)": {1 << 20, 0},
		"times('custom', 90, 12, 9); times('nccl', 30, 31, 60)": {0, 14336},
		"times('custom', 9, 12); times('nccl', 30, 31, 60)":     {43008, 1 << 20}, // not used beyond
	} {
		if r := run(t, "begin(); numbers(); "+say+"; done()"); r.WinsTo != want[0] || r.LosesFrom != want[1] {
			t.Errorf("%s: up to %d, not from %d", say, r.WinsTo, r.LosesFrom)
		}
	}
}

// TestProfile: NCCL is timed once more, alone, under the other environment; if
// that is as fast, it is the better way.
func TestProfile(t *testing.T) {
	say := "if task['nccl_only']:\n    assert os.environ['NCCL_PROTO'] == 'LL' and 'CAP' not in os.environ\n    phase('set up'); times('nccl', 8, %s, 50); done()\nelse:\n    assert os.environ['CAP'] == '1'\n    begin(); numbers(); times('custom', 9, 12, 90); times('nccl', 30, 31, 60); done()\n"
	with := func(task *Task) { task.Env, task.Profile = []string{"CAP=1"}, []string{"NCCL_PROTO=LL"} }
	r := run(t, strings.Replace(say, "%s", "28", 1), with)
	if row := r.Row(43008); r.Verdict != Better || row.Profile == nil || row.Profile.Median != 28 || row.NCCL.Median != 31 {
		t.Errorf("%+v", r)
	}
	if r := run(t, strings.Replace(say, "phase('set up'); times('nccl', 8, %s, 50); done()", "sys.exit('no')", 1), with); r.Verdict != Better || !strings.Contains(r.Why, "could not be timed") {
		t.Errorf("%s: %s", r.Verdict, r.Why)
	}
	if r := run(t, strings.Replace(say, "%s", "11", 1), with); r.Verdict != NotBetter || r.Hint != "sgpatch apply nccl-pcie" {
		t.Errorf("%+v", r)
	}
}

// TestLeavesNothing: what the launcher leaves for others to tidy up goes with it,
// and root's working directory has no say in what Python imports.
func TestLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Chdir(t.TempDir())
	r := run(t, "import tempfile; open(tempfile.mkdtemp() + '/log', 'w'); say('log', text=os.getcwd()); begin(); numbers(); done()")
	if left, _ := os.ReadDir(dir); r.Verdict != Right || len(left) > 0 {
		t.Errorf("%s: %s; %v", r.Verdict, r.Why, left)
	}
	if os.Geteuid() == 0 && r.Log[0] != "/" {
		t.Errorf("started in %s", r.Log[0])
	}
}

// TestHangIsKilled: nothing of it is left, whatever it had started.
func TestHangIsKilled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	r := run(t, "begin(); p = subprocess.Popen(['sleep', '1000']); open('"+file+"', 'w').write(str(p.pid)); import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)", func(task *Task) { task.Limit = 2 * time.Second })
	if r.Verdict != Hang {
		t.Errorf("%+v", r)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(string(text))
	for range 100 {
		if syscall.Kill(pid, 0) == syscall.ESRCH {
			return
		}
		if state, _ := os.ReadFile("/proc/" + string(text) + "/stat"); strings.Contains(string(state), ") Z ") {
			return // dead, and nobody here collects it
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("a process of it is left")
	syscall.Kill(pid, syscall.SIGKILL)
}

func TestInterrupted(t *testing.T) {
	python := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(python, []byte(standIn+"time.sleep(60)"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	if _, err := Run(ctx, Task{Python: python, Sizes: []int{16}, Limit: time.Minute, Scratch: scratch}); err == nil || time.Since(start) > 20*time.Second {
		t.Errorf("%v after %s", err, time.Since(start))
	}
}

// TestScript: the script is Python that the oldest supported interpreter reads,
// and says itself what it finds where torch sees no GPU.
func TestScript(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "torch.py"), []byte("class cuda:\n    device_count = staticmethod(lambda: 0)\nclass distributed: pass\nimport sys; sys.modules['torch.distributed'] = distributed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", "-c", script, `{"mark": "M", "until": `+strconv.FormatInt(time.Now().Unix()+60, 10)+`, "nccl_only": false, "sizes": []}`)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1", "RANK=3", "WORLD_SIZE=4")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	e := &ears{mark: "M"}
	e.Write(out)
	all := e.heard()
	if len(all) != 2 || all[0].where() != "import torch" || all[1].Why != "torch sees no GPU" || all[1].Rank != 3 {
		t.Errorf("%+v\n%s", all, out)
	}
	out, err = exec.Command("python3", "-c", "import ast, sys; ast.parse(sys.argv[1], feature_version=(3, 8))", script).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestLinks(t *testing.T) {
	got := readLinks([]byte("0, 00000000:00:06.0, 4, 5, 8, 16, 580.159.04, 2\n1, 00000000:00:07.0, 5, 5, 16, 16, 580.159.04, [N/A]\nNo devices were found\n"))
	if len(got) != 2 || got[0] != (Link{0, "00000000:00:06.0", 4, 5, 8, 16, "580.159.04", 2}) || got[1].ecc != 0 || got[1].Width != 16 {
		t.Errorf("%+v", got)
	}
	now, errors := (sight{links: []Link{{GPU: 0, ecc: 1}}}).since()
	if now == nil || errors == nil || len(errors) > 0 {
		t.Errorf("%v %v", now, errors)
	}
}

// TestLinksHang: a tool that does not end holds nobody up, nor does what it started.
func TestLinksHang(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\nsleep 30\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	defer func(d time.Duration) { smi.Patience = d }(smi.Patience)
	smi.Patience = 200 * time.Millisecond
	start := time.Now()
	if all := links(); all != nil || time.Since(start) > 10*time.Second {
		t.Errorf("%v after %s", all, time.Since(start))
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int]string{14336: "14 KiB", 1 << 20: "1 MiB", 1<<20 + 16: "1048592 B", 3 << 19: "1536 KiB"} {
		if got := Size(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}
