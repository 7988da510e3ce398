package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sgpatch/fixtures/python"
	"sgpatch/fixtures/snapshot"
	"sgpatch/patcher/patchset"
)

// built makes the program as it is shipped: what an attack costs is not
// measured on a test binary, which the race detector makes ten times heavier.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sgpatch-hostile-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	os.Chmod(dir, 0o755) // other users run it, too
	cmd := exec.Command("go", "build", "-trimpath", "-o", dir, ".", "./testdata/measure")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, text)
	}
	out := filepath.Join(dir, "sgpatch")
	return out, os.Rename(filepath.Join(dir, "patch"), out)
})

var builtIn string

// tidy removes it when all tests are done.
type tidy struct{ *testing.M }

func (m tidy) Run() int {
	defer func() { os.RemoveAll(builtIn) }()
	return m.M.Run()
}

// ran is how one run of the program ended and what it cost.
type ran struct {
	code           int
	stdout, stderr string
	cpu            time.Duration // of its processors, so that a busy machine does not count
	rss            int64         // bytes at the peak
}

// Bounds on whatever an attack makes the program do. A hang is not waited for.
const (
	mostTime   = 2 * time.Second
	mostMemory = 300 << 20
	hangs      = 30 * time.Second
)

// attacked runs the program as uid in dir, and demands what holds for every
// attack: an end, no panic, and little time and memory.
func attacked(t *testing.T, uid int, dir string, args ...string) ran {
	t.Helper()
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return attackedBy(t, program, uid, dir, args...)
}

// attackedBy is attacked for a copy of the program.
func attackedBy(t *testing.T, program string, uid int, dir string, args ...string) ran {
	t.Helper()
	tool, err := built()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(tool), "measure"), append([]string{program}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(python.CleanEnv(), "MEASURE_UID="+strconv.Itoa(uid), "SGPATCH_STATE_DIR="+filepath.Join(dir, "state"), "LANG=C.UTF-8")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cost, err := os.CreateTemp(t.TempDir(), "cost")
	if err != nil {
		t.Fatal(err)
	}
	defer cost.Close()
	cmd.ExtraFiles = []*os.File{cost}
	cmd.Run()
	r := ran{stdout: stdout.String(), stderr: stderr.String()}
	cost.Seek(0, io.SeekStart)
	if _, err := fmt.Fscan(cost, &r.code, &r.cpu, &r.rss); err != nil && ctx.Err() == nil {
		t.Fatalf("%v: %v: %s", args, err, r.stderr)
	}
	if ctx.Err() != nil {
		t.Errorf("%v: no end within %s", args, hangs)
	}
	if all := r.stdout + r.stderr; strings.Contains(all, "goroutine ") || strings.Contains(all, "panic") {
		t.Errorf("%v: a panic:\n%s", args, all)
	}
	if r.cpu > mostTime || r.rss > mostMemory {
		t.Errorf("%v: took %s and %d MiB", args, r.cpu, r.rss>>20)
	}
	t.Logf("%s: exit %d, %s, %d MiB: %s", args[0], r.code, r.cpu, r.rss>>20, r.stderr)
	return r
}

// refuses demands the refusal that the contract describes: the code, the file
// by its name, that nothing was changed, and what to do.
func (r ran) refuses(t *testing.T, code int, names string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit %d, want %d\n%s%s", r.code, code, r.stdout, r.stderr)
	}
	wants := []string{names, "next: "}
	if code == exitRefused {
		wants = append(wants, "nothing was changed")
	}
	for _, w := range wants {
		if !strings.Contains(r.stderr, w) {
			t.Errorf("no %q in: %s", w, r.stderr)
		}
	}
}

// census is a snapshot of a tree with everything in it, records and bytecode
// as well, and with the inodes, so that a replaced file is seen.
func census(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		u := st.Sys().(*syscall.Stat_t)
		what := fmt.Sprintf("%s %d:%d inode %d %s", st.Mode(), u.Uid, u.Gid, u.Ino, st.ModTime())
		switch {
		case st.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			what += " -> " + to
		case st.Mode().IsRegular() && st.Size() < 32<<20:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what += " " + string(patchset.DigestOf(data))
		}
		all[path] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func unchanged(t *testing.T, was map[string]string, dir string) {
	t.Helper()
	now := census(t, dir)
	for _, path := range snapshot.Differ(was, now) {
		t.Errorf("changed: %s\n was %s\n now %s", path, was[path], now[path])
	}
}

// ground is a folder that others may enter, with a small install in site.
func ground(t *testing.T) (dir, site string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sgpatch-ground-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o755)
	site = filepath.Join(dir, "site")
	lay(t, filepath.Join(site, "sglang", "__init__.py"), "")
	lay(t, filepath.Join(site, "sglang", "version.py"), "__version__ = \"0.5.9\"\n")
	lay(t, filepath.Join(site, "sglang", "a.py"), before)
	return dir, site
}

// The file that the sets of these tests change, and what they make of it.
const (
	before = "import os\nLIMIT = 1\nNAME = \"a\"\n"
	after  = "import os\nLIMIT = 1024\nNAME = \"a\"\n"
	header = "--- a/sglang/a.py\n+++ b/sglang/a.py\n"
	change = header + "@@ -1,3 +1,3 @@\n import os\n-LIMIT = 1\n+LIMIT = 1024\n NAME = \"a\"\n"
	naming = "id = \"x\"\nversion = \"1\"\n"
)

func lay(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// goodSet lays down the set x, listed for the small install, in dir/sets.
func goodSet(t *testing.T, dir string) string {
	t.Helper()
	sets := filepath.Join(dir, "sets")
	lay(t, filepath.Join(sets, "x", "manifest.toml"), naming+"[[env]]\nname = \"SGLANG_X\"\nvalue = \"1\"\nswitch = true\n")
	lay(t, filepath.Join(sets, "x", "v1", "a.diff"), change)
	lay(t, filepath.Join(sets, "x", "releases.tsv"), "release\tpath\tpristine_sha256\tpatched_sha256\tvariant\n"+
		strings.Join([]string{"0.5.9", "sglang/a.py", string(patchset.DigestOf([]byte(before))), string(patchset.DigestOf([]byte(after))), "v1"}, "\t")+"\n")
	return sets
}
