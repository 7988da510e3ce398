package ansible

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sgpatch/fixtures/snapshot"
	"sgpatch/fixtures/sshd"
)

// call is one task with the module: its arguments, what it comes to ("ok",
// "changed" or "failed"), and words that its message or warnings have to hold.
type call struct {
	name  string
	args  map[string]any
	want  string
	words []string
	check bool
}

// calls runs tasks one after another on this machine, in one play.
func (c *control) calls(all []call) map[string]result {
	c.t.Helper()
	var tasks []map[string]any
	for _, one := range all {
		task := map[string]any{"name": one.name, "sgpatch": one.args, "ignore_errors": true, "environment": map[string]string{"SGPATCH_STATE_DIR": c.dir + "/state", "LC_ALL": "C"}}
		if one.check {
			task["check_mode"], task["diff"] = true, true
		}
		tasks = append(tasks, task)
	}
	c.inventory = map[string]any{"all": map[string]any{"hosts": map[string]any{"here": map[string]any{"ansible_connection": "local", "ansible_python_interpreter": interpreter(c.t)}}}}
	play, err := json.Marshal([]any{map[string]any{"hosts": "here", "gather_facts": false, "tasks": tasks}})
	if err != nil {
		c.t.Fatal(err)
	}
	sshd.Write(c.t, c.dir+"/play.yml", string(play))
	byName := map[string]result{}
	for _, r := range c.play(0, c.dir+"/play.yml") {
		byName[r.Task] = r
	}
	for _, one := range all {
		c.check(one, byName[one.name])
	}
	return byName
}

func (c *control) check(want call, r result) {
	c.t.Helper()
	said := r.Result.Msg + fmt.Sprint(r.Result.Warnings)
	if r.what() != want.want {
		c.t.Errorf("%s: %s, want %s: %s", want.name, r.what(), want.want, said)
	}
	for _, w := range want.words {
		if !strings.Contains(said, w) {
			c.t.Errorf("%s: %q is not in: %s", want.name, w, said)
		}
	}
	if strings.Contains(said+r.Result.Stdout, "Traceback") {
		c.t.Errorf("%s: %+v", want.name, r.Result)
	}
}

// TestModule: what the module makes of the program's reports.
func TestModule(t *testing.T) {
	c := newControl(t)
	bin := program(t)
	root := c.install("a röot, 'odd' \"one\" $x")
	pristine, err := snapshot.Of(root)
	if err != nil {
		t.Fatal(err)
	}
	with := func(more ...any) map[string]any {
		args := map[string]any{"executable": bin, "root": root}
		for i := 0; i < len(more); i += 2 {
			args[more[i].(string)] = more[i+1]
		}
		return args
	}
	both := []string{"force-custom-ar-pcie", "nccl-pcie"}
	got := c.calls([]call{
		{"would apply", with("sets", both), "changed", []string{"it was not checked whether " + root + "/sitecustomize.py is imported"}, true},
		{"apply", with("sets", both, "reason", "-n 'ü' $HOME", "env", map[string]any{"NCCL_NTHREADS": 256}), "changed", nil, false},
		{"would apply again", with("sets", both), "ok", nil, true},
		{"apply again", with("sets", both), "ok", nil, false},
		{"apply from there", with("root", filepath.Base(root), "chdir", c.dir), "ok", nil, false},
		{"verify", with("state", "verified"), "ok", nil, false},
		{"verify, not for real", with("state", "verified", "fast", true), "ok", nil, true},
		{"no such set", with("sets", []string{"none"}), "failed", []string{"none", "next: sgpatch list"}, false},
		{"no such entry", with("env", map[string]any{"PATH": "x"}), "failed", []string{"--env PATH"}, false},
		{"no such state", with("state", "gone"), "failed", []string{"state must be one of"}, false},
		{"no such option", with("rot", "x"), "failed", []string{"Unsupported parameters", "rot"}, false},
		{"a flag for a set", with("sets", []string{"--host=x"}), "failed", []string{"'--host=x' is not the id of a patch set"}, false},
		{"an empty root", with("root", ""), "failed", []string{"root is empty"}, false},
		{"no directory", with("chdir", c.dir+"/none"), "failed", []string{c.dir + "/none"}, false},
		{"purge when applying", with("purge", true), "failed", []string{"purge goes with state reverted, not with applied"}, false},
		{"a bare boolean", with("env", map[string]any{"NCCL_PROTO": true}), "failed", []string{"NCCL_PROTO is True: write it in quotes"}, false},
		{"no time", with("lock_timeout", "soon"), "failed", []string{"lock-timeout"}, false},
		{"no install", with("root", c.dir), "failed", []string{"refused, nothing was changed", "next: "}, false},
		{"would revert", with("state", "reverted", "purge", true), "changed", nil, true},
		{"revert one", with("state", "reverted", "sets", []string{"nccl-pcie"}), "changed", nil, false},
		{"revert", with("state", "reverted", "result", "38.3 tok/s, was 82"), "changed", nil, false},
		{"would purge", with("state", "reverted", "purge", true), "changed", nil, true},
		{"purge", with("state", "reverted", "purge", true), "changed", nil, false},
		{"purge again", with("state", "reverted", "purge", true), "ok", nil, false},
		{"verify nothing", with("state", "verified"), "failed", []string{"it does not hold:\nforce-custom-ar-pcie is not in place", "\nnext: sgpatch apply"}, false},
	})
	if diff := fmt.Sprint(got["would apply"].Result.Diff); !strings.Contains(diff, "+++ "+root+"/"+class) || !strings.Contains(diff, `setdefault("NCCL_PROTO"`) {
		t.Errorf("the difference: %s", diff)
	}
	if reason := got["apply"].Result.Report.Receipt.Last.Reason; reason != "-n 'ü' $HOME" {
		t.Errorf("reason: %q", reason)
	}
	if rc := got["no such set"].Result.Rc; rc != 2 {
		t.Errorf("no such set: %d", rc)
	}
	after, err := snapshot.Of(root)
	if d := snapshot.Differ(pristine, after); err != nil || len(d) > 0 {
		t.Errorf("%v %v", err, d)
	}
}

// TestModuleFindings: each of several findings is told, and bytecode that hid
// the patch is a change.
func TestModuleFindings(t *testing.T) {
	c := newControl(t)
	root := c.install("site")
	args := map[string]any{"executable": program(t), "root": root}
	verified := map[string]any{"executable": args["executable"], "root": root, "state": "verified"}
	c.calls([]call{{"apply", args, "changed", nil, false}})
	sshd.Tool(t, "python3", "-c", "import py_compile, sys; py_compile.compile(sys.argv[1], invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH, doraise=True)", root+"/"+class)
	if err := os.Remove(root + "/sitecustomize.py"); err != nil {
		t.Fatal(err)
	}
	c.calls([]call{
		{"verify", verified, "failed", []string{"it does not hold:", ".pyc is unchecked-hash bytecode", root + "/sitecustomize.py", "SGLANG_FORCE_CUSTOM_AR_PCIE"}, false},
		{"mend", args, "changed", nil, false},
	})
	sshd.Tool(t, "python3", "-c", "import py_compile, sys; py_compile.compile(sys.argv[1], invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH, doraise=True)", root+"/"+class)
	got := c.calls([]call{
		{"would clear", args, "changed", nil, true},
		{"clear", args, "changed", nil, false},
		{"clear again", args, "ok", nil, false},
		{"verify", verified, "ok", nil, false},
	})
	if gone := got["clear"].Result.Report.Changed; len(gone) != 1 || !strings.HasSuffix(gone[0], ".pyc") {
		t.Errorf("cleared: %v", gone)
	}
}

// TestModuleInterrupted: sgpatch is killed in the middle of its commit. What
// puts that right changes bytes, although it finds nothing else to do.
func TestModuleInterrupted(t *testing.T) {
	c := newControl(t)
	bin := program(t, "-tags", "faults")
	root, twin := c.install("site"), c.install("twin")
	pristine, err := snapshot.Of(root)
	if err != nil {
		t.Fatal(err)
	}
	under := func(setting string) string { // the program, with this in its environment
		path := filepath.Join(t.TempDir(), "under")
		if err := os.WriteFile(path, []byte(fmt.Sprintf("#!/bin/sh\nexec env '%s' '%s' \"$@\"\n", setting, bin)), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c.calls([]call{{"apply", map[string]any{"executable": under("SGPATCH_FAULT_LOG=" + c.dir + "/log"), "root": twin}, "changed", nil, false}})
	at := c.renamed(c.dir + "/log")
	killed := under(fmt.Sprintf("SGPATCH_FAULT=kill:%d:after", at))
	c.calls([]call{{"apply", map[string]any{"executable": killed, "root": root}, "failed", []string{"ended by SIGKILL"}, false}})
	half, err := snapshot.Of(root)
	if d := snapshot.Differ(pristine, half); err != nil || !slices.Contains(d, root+"/"+class) {
		t.Fatalf("it was not killed in its commit (call %d): %v %v", at, err, d)
	}
	args := map[string]any{"executable": bin, "root": root, "state": "reverted"}
	c.calls([]call{
		{"would revert", args, "changed", nil, true},
		{"revert", args, "changed", nil, false},
		{"revert again", args, "ok", nil, false},
	})
	after, err := snapshot.Of(root)
	if d := snapshot.Differ(pristine, after); err != nil || len(d) > 0 {
		t.Errorf("%v %v", err, d)
	}
}

// renamed is the number of the call that put the patched file in place.
func (c *control) renamed(log string) (n int) {
	c.t.Helper()
	for line := range strings.Lines(sshd.Read(c.t, log)) {
		var made struct {
			N  int
			To string
		}
		if err := json.Unmarshal([]byte(line), &made); err != nil {
			c.t.Fatal(err)
		}
		if filepath.Base(made.To) == filepath.Base(class) {
			n = made.N
		}
	}
	return n
}

// TestModuleProgram: what stands where the program should be says anything but
// what it should.
func TestModuleProgram(t *testing.T) {
	c := newControl(t)
	fake := func(name, script string) map[string]any {
		path := filepath.Join(c.dir, name)
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		return map[string]any{"executable": path}
	}
	prints := func(name, report string, exit int) map[string]any {
		return fake(name, fmt.Sprintf("#!/bin/sh\ncat <<'END'\n%s\nEND\nexit %d\n", report, exit))
	}
	report := func(exit int, findings string) string {
		return fmt.Sprintf(`{"schema":1,"command":"apply","exit":%d,"changed":[],"findings":[%s]}`, exit, findings)
	}
	plain := fake("plain", "#!/bin/sh\n")
	if err := os.Chmod(plain["executable"].(string), 0o644); err != nil {
		t.Fatal(err)
	}
	const silent = "printed no report"
	got := c.calls([]call{
		{"missing", map[string]any{"executable": c.dir + "/none"}, "failed", []string{"there is no program " + c.dir + "/none"}, false},
		{"not executable", plain, "failed", []string{"there is no program"}, false},
		{"for another machine", fake("garbage", "\x7fELF\x02\x01\x01 not really"), "failed", []string{"cannot be run"}, false},
		{"no JSON", fake("hello", "#!/bin/sh\necho hällo; echo oops >&2\n"), "failed", []string{silent, "ended with 0"}, false},
		{"nothing", fake("false", "#!/bin/sh\nexit 9\n"), "failed", []string{silent, "ended with 9"}, false},
		{"not text", fake("bytes", "#!/bin/sh\nprintf '\\377\\376\\200'\n"), "failed", []string{silent}, false},
		{"a list", prints("list", "[]", 0), "failed", []string{silent}, false},
		{"half a report", prints("half", `{"schema":1,"command":"apply"}`, 0), "failed", []string{silent}, false},
		{"findings that are none", prints("numbers", report(0, "1"), 0), "failed", []string{silent}, false},
		{"a report of later days", prints("later", strings.Replace(report(0, ""), `"schema":1`, `"schema":2`, 1), 0), "failed", []string{silent}, false},
		{"a report of another command", prints("other", strings.Replace(report(0, ""), "apply", "revert", 1), 0), "failed", []string{silent}, false},
		{"two reports", prints("two", report(0, "")+report(0, ""), 0), "failed", []string{silent}, false},
		{"killed", fake("killed", "#!/bin/sh\nkill -9 $$\n"), "failed", []string{"ended by SIGKILL", "the next sgpatch that writes settles"}, false},
		{"killed afterwards", fake("later-killed", "#!/bin/sh\necho '"+report(0, "")+"'\nkill -9 $$\n"), "failed", []string{"ended by SIGKILL"}, false},
		{"another exit code", prints("exit", report(0, ""), 5), "failed", []string{"ended with 5 and reports 0"}, false},
		{"put back", prints("five", report(5, `{"code":"error","severity":"error","message":"the disk is full","hint":"make room"}`), 5), "failed", []string{"failed, and everything was put back:\nthe disk is full\nnext: make room"}, false},
		{"put back after settling", prints("settled-five", report(5, `{"code":"recovered","severity":"note","message":"an interrupted apply was found"}`), 5), "failed", []string{"failed:\nan interrupted apply was found"}, false},
		{"broken", prints("six", report(6, ""), 6), "failed", []string{"not all could be put back"}, false},
		{"interrupted", prints("interrupted", report(130, ""), 130), "failed", []string{"interrupted"}, false},
		{"settled", prints("settled", report(0, `{"code":"recovered","severity":"note","message":"an interrupted apply was found"}`), 0), "changed", nil, false},
		{"warned", prints("warned", report(0, `{"code":"copies","severity":"warning","message":"there are two","hint":"remove one"}`), 0), "ok", []string{"there are two", "next: remove one"}, false},
	})
	if r := got["no JSON"].Result; r.Rc != 0 || r.Stdout != "hällo\n" {
		t.Errorf("no JSON: %+v", r)
	}
	for name, changed := range map[string]bool{"put back": false, "put back after settling": true, "broken": true} {
		if r := got[name].Result; r.Changed != changed || r.Rc != r.Report.Exit {
			t.Errorf("%s: changed %v, %d", name, r.Changed, r.Rc)
		}
	}
}
