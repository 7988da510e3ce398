package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"sgpatch/fixtures/python"
	"sgpatch/fixtures/snapshot"
	"sgpatch/fixtures/tree"
	"sgpatch/patcher/patchset"
)

func TestMain(m *testing.M) {
	program := func() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }
	if os.Getenv("SGPATCH_TEST_RUN") != "" {
		os.Args[0] = "sgpatch"
		program()
	}
	testscript.Main(tidy{m}, map[string]func(){"sgpatch": program, "patch": program})
}

// TestStories drives the program through the archives under testdata/script:
// each is one story, told from outside.
func TestStories(t *testing.T) {
	var snaps sync.Map // stories run side by side
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: false,
		Setup:               storyEnv,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"base":   cmdBase,
			"venv":   cmdVenv,
			"sglang": cmdSglang,
			"table":  cmdTable,
			"snap": func(ts *testscript.TestScript, neg bool, args []string) {
				snaps.Store(ts.Getenv("WORK")+args[0], snap(ts, args[1]))
			},
			"same": func(ts *testscript.TestScript, neg bool, args []string) {
				was, _ := snaps.Load(ts.Getenv("WORK") + args[0])
				cmdSame(ts, was.(map[string]string), neg, args[1])
			},
			"replace": cmdReplace,
			"json":    cmdJSON,
			"busy":    cmdBusy,
			"exits":   cmdExits,
			// output NAME: keeps the last standard output in a variable
			"output": func(ts *testscript.TestScript, neg bool, args []string) {
				ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
			},
		},
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	})
}

// storyEnv keeps a story away from the host: a home, a state folder and a
// temporary folder of its own, and none of the caller's Python settings.
func storyEnv(e *testscript.Env) error {
	for _, d := range []string{"home", "state", "tmp"} {
		if err := os.Mkdir(filepath.Join(e.WorkDir, d), 0o755); err != nil {
			return err
		}
	}
	e.Vars = append(e.Vars, "HOME="+filepath.Join(e.WorkDir, "home"), "SGPATCH_STATE_DIR="+filepath.Join(e.WorkDir, "state"), "TMPDIR="+filepath.Join(e.WorkDir, "tmp"), "NO_COLOR=1", "LANG=C.UTF-8", "SET=force-custom-ar-pcie", "GATE=SGLANG_FORCE_CUSTOM_AR_PCIE",
		"CAR=sglang/srt/distributed/device_communicators/custom_all_reduce.py")
	return nil
}

// base NAME: a private copy of the interpreter at $WORK/NAME; sets $NAME_py, $NAME_site, $NAME_lib.
func cmdBase(ts *testscript.TestScript, neg bool, args []string) {
	e, err := python.Base(ts.MkAbs(args[0]), "python3")
	ts.Check(err)
	export(ts, args[0], e)
}

// venv NAME BASE: a virtual environment on a base.
func cmdVenv(ts *testscript.TestScript, neg bool, args []string) {
	base := python.Env{Dir: ts.MkAbs(args[1]), Python: ts.Getenv(args[1] + "_py"), Site: ts.Getenv(args[1] + "_site"), Lib: ts.Getenv(args[1] + "_lib")}
	e, err := base.Venv(ts.MkAbs(args[0]))
	ts.Check(err)
	export(ts, args[0], e)
}

func export(ts *testscript.TestScript, name string, e python.Env) {
	ts.Setenv(name+"_py", e.Python)
	ts.Setenv(name+"_site", e.Site)
	ts.Setenv(name+"_lib", e.Lib)
	ts.Setenv(name+"_tag", "cpython-"+strings.NewReplacer("python", "", ".", "").Replace(filepath.Base(e.Lib)))
}

// sglang DIR: lays the small SGLang down as an installer would.
func cmdSglang(ts *testscript.TestScript, neg bool, args []string) {
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	ts.Check(tree.Write(dir))
}

// table SET ROOT RELEASE VARIANT: adds the contents under ROOT to SET's release table.
func cmdTable(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(addTable(ts.MkAbs(args[0]), ts.MkAbs(args[1]), args[2], args[3]))
}

func addTable(dir, root, release, variant string) error {
	path := filepath.Join(dir, "releases.tsv")
	text, err := os.ReadFile(path)
	if err != nil {
		text = []byte("release\tpath\tpristine_sha256\tpatched_sha256\tvariant\n")
	}
	diffs, err := filepath.Glob(filepath.Join(dir, variant, "*.diff"))
	if err != nil {
		return err
	}
	for _, d := range diffs {
		rows, err := tableRows(d, root, release, variant)
		if err != nil {
			return err
		}
		text = append(text, rows...)
	}
	return os.WriteFile(path, text, 0o644)
}

func tableRows(diff, root, release, variant string) (rows []byte, err error) {
	raw, err := os.ReadFile(diff)
	if err != nil {
		return nil, err
	}
	files, err := patchset.Parse(diff, raw)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		pristine, err := os.ReadFile(filepath.Join(root, f.Path))
		if err != nil {
			return nil, err
		}
		patched, err := f.Apply(pristine)
		if err != nil {
			return nil, err
		}
		rows = fmt.Appendf(rows, "%s\t%s\t%s\t%s\t%s\n", release, f.Path, patchset.DigestOf(pristine), patchset.DigestOf(patched), variant)
	}
	return rows, nil
}

func cmdSame(ts *testscript.TestScript, was map[string]string, neg bool, dir string) {
	now := snap(ts, dir)
	if d := snapshot.Differ(was, now); neg == (len(d) == 0) {
		ts.Fatalf("%s: not the same (%v): %s", dir, !neg, cmp.Diff(was, now))
	}
}

func snap(ts *testscript.TestScript, dir string) map[string]string {
	all, err := snapshot.Of(ts.MkAbs(dir))
	ts.Check(err)
	return all
}

// replace FILE OLD NEW: an edit by somebody else; \n stands for a line end.
func cmdReplace(ts *testscript.TestScript, neg bool, args []string) {
	path := ts.MkAbs(args[0])
	data, err := os.ReadFile(path)
	ts.Check(err)
	nl := strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\x00`, "\x00")
	old, new := nl.Replace(args[1]), nl.Replace(args[2])
	if !strings.Contains(string(data), old) {
		ts.Fatalf("%s does not contain %q", path, old)
	}
	ts.Check(os.WriteFile(path, []byte(strings.Replace(string(data), old, new, 1)), 0o644))
}

// json PATH VALUE: the last standard output is one report, and has that value
// at that path ("sets.force-custom-ar-pcie.state", "findings" for their codes).
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	var doc any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &doc))
	got := strings.TrimSpace(look(doc, strings.Split(args[0], ".")))
	want := strings.Join(args[1:], " ")
	match := got == want
	if args[0] == "findings" {
		match = strings.Contains(" "+got+" ", " "+want+" ")
	}
	if match == neg {
		ts.Fatalf("%s is %q, want %q (%v)", args[0], got, want, !neg)
	}
}

func look(v any, path []string) string {
	if len(path) == 0 {
		return render(v)
	}
	switch x := v.(type) {
	case map[string]any:
		return look(x[path[0]], path[1:])
	case []any:
		for i, e := range x {
			m, ok := e.(map[string]any)
			if fmt.Sprint(i) == path[0] || (ok && (m["id"] == path[0] || m["name"] == path[0] || m["path"] == path[0] || m["code"] == path[0])) {
				return look(e, path[1:])
			}
		}
	}
	return "<none>"
}

func render(v any) string {
	if list, ok := v.([]any); ok {
		var all []string
		for _, e := range list {
			if m, ok := e.(map[string]any); ok && m["code"] != nil {
				e = m["code"]
			}
			all = append(all, fmt.Sprint(e))
		}
		return strings.Join(all, " ")
	}
	return fmt.Sprint(v)
}

// exits CODE PROGRAM ARG...: the program ends with exactly this status.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	code := 0
	var ee *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &ee) {
		code = ee.ExitCode()
	} else {
		ts.Check(err)
	}
	if (fmt.Sprint(code) == args[0]) == neg {
		ts.Fatalf("%s ended with %d, want %s (%v)", args[1], code, args[0], !neg)
	}
}

// busy FILE: holds the lock of another sgpatch until the story ends.
func cmdBusy(ts *testscript.TestScript, neg bool, args []string) {
	f, err := os.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	ts.Defer(func() { f.Close() })
}
