package ansible

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sgpatch/fixtures/python"
	"sgpatch/fixtures/snapshot"
	"sgpatch/fixtures/sshd"
	"sgpatch/fixtures/tree"
)

// the tasks of the role that run the module
const (
	put   = "sgpatch : Put the sets in place"
	judge = "sgpatch : Judge them as a server will see them"
	take  = "sgpatch : Take the sets out"
)

// outcomes says in one line what a task came to, as "gpu-1:changed gpu-2:failed".
func outcomes(all []result, task string) string {
	var line []string
	for _, r := range all {
		if r.Task == task {
			line = append(line, r.Host+":"+r.what())
		}
	}
	slices.Sort(line)
	return strings.Join(line, " ")
}

func (c *control) want(all []result, task, line string) {
	c.t.Helper()
	if got := outcomes(all, task); got != line {
		c.t.Errorf("%s: %s, want %s", task, got, line)
	}
}

// of is what a task came to on a host.
func (c *control) of(all []result, host, task string) result {
	c.t.Helper()
	i := slices.IndexFunc(all, func(r result) bool { return r.Host == host && r.Task == task })
	if i < 0 {
		c.t.Fatalf("%s was not run on %s: %+v", task, host, all)
	}
	return all[i]
}

// fleet is a control machine with three hosts: two whose install is a folder,
// one of them with an odd name, and one with an interpreter.
type fleet struct {
	*control
	roots []string
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{control: newControl(t)}
	bin, at, known := filepath.Dir(program(t)), interpreter(t), ""
	hosts := map[string]any{}
	for i, folder := range []string{"site", "a site, ünlike 'others' $x", ""} {
		s := sshd.New(t)
		known += s.Known(t, "ed25519") + s.Known(t, "ecdsa") + s.Known(t, "rsa")
		host := map[string]any{
			"ansible_host": "127.0.0.1", "ansible_port": s.Port, "ansible_user": s.User, "ansible_ssh_private_key_file": s.Dir + "/client",
			"ansible_python_interpreter": at, "sgpatch_binary_dir": bin, "sgpatch_bin_dir": s.Far(), "restarts": s.Far() + "/restarts",
		}
		root := filepath.Join(s.Far(), folder)
		if folder == "" {
			env, err := python.Base(s.Far()+"/python", at)
			if err != nil {
				t.Fatal(err)
			}
			host["sgpatch_python"], root = env.Python, env.Site
		} else {
			host["sgpatch_root"] = root
		}
		if err := os.MkdirAll(root, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := tree.Write(root); err != nil {
			t.Fatal(err)
		}
		f.roots = append(f.roots, root)
		hosts[fmt.Sprintf("gpu-%d", i+1)] = host
	}
	sshd.Write(t, f.dir+"/known_hosts", known)
	f.inventory = map[string]any{"gpus": map[string]any{"hosts": hosts}}
	return f
}

// installs is all that the three installs consist of, times included.
func (f *fleet) installs() map[string]string {
	f.t.Helper()
	all := map[string]string{}
	for _, root := range f.roots {
		one, err := snapshot.Of(root)
		if err != nil {
			f.t.Fatal(err)
		}
		for path, what := range one {
			all[path] = what
		}
	}
	return all
}

func (f *fleet) same(before map[string]string, when string) {
	f.t.Helper()
	if d := snapshot.Differ(before, f.installs()); len(d) > 0 {
		f.t.Errorf("%s: %v", when, d)
	}
}

// restarts counts the hosts on which the handler ran, and forgets them.
func (f *fleet) restarts() (n int) {
	for _, host := range f.inventory["gpus"].(map[string]any)["hosts"].(map[string]any) {
		if os.Remove(host.(map[string]any)["restarts"].(string)) == nil {
			n++
		}
	}
	return n
}

// TestRole takes the role through the life of a patch on three hosts.
func TestRole(t *testing.T) {
	f := newFleet(t)
	pristine := f.installs()

	all := f.play(0, "rolling.yml", "--check", "--diff")
	f.want(all, put, "gpu-1:changed gpu-2:changed gpu-3:changed")
	f.want(all, judge, "gpu-1:skipped gpu-2:skipped gpu-3:skipped")
	for i, root := range f.roots {
		r := f.of(all, fmt.Sprintf("gpu-%d", i+1), put)
		if text := fmt.Sprint(r.Result.Diff); !strings.Contains(text, "+++ "+root+"/"+class) || !strings.Contains(text, "+        forced = False") {
			t.Errorf("the difference of %s: %s", root, text)
		}
	}
	f.untouched(all)
	f.same(pristine, "--check")

	all = f.play(0, "testdata/site.yml", "-e", "sgpatch_reason=\"it's a try\"")
	f.want(all, put, "gpu-1:changed gpu-2:changed gpu-3:changed")
	f.want(all, judge, "gpu-1:ok gpu-2:ok gpu-3:ok")
	if reason := f.of(all, "gpu-2", put).Result.Report.Receipt.Last.Reason; reason != "it's a try" {
		t.Errorf("reason: %q", reason)
	}
	if n := f.restarts(); n != 3 {
		t.Errorf("%d of 3 restarted", n)
	}
	patched := f.installs()

	for _, args := range [][]string{nil, {"--check", "--diff"}} {
		all = f.play(0, "testdata/site.yml", args...)
		for _, r := range all {
			if r.Result.Changed {
				t.Errorf("again %v: %s changed %s", args, r.Task, r.Host)
			}
		}
		f.want(all, put, "gpu-1:ok gpu-2:ok gpu-3:ok")
		f.want(all, judge, "gpu-1:ok gpu-2:ok gpu-3:ok")
		f.same(patched, "again")
	}
	if n := f.restarts(); n != 0 {
		t.Errorf("%d restarted for nothing", n)
	}

	f.drift(patched)

	all = f.play(0, "revert.yml", "--check", "--diff")
	f.want(all, take, "gpu-1:changed gpu-2:changed gpu-3:changed")
	f.same(patched, "revert --check")
	all = f.play(0, "revert.yml", "-e", "sgpatch_purge=true")
	f.want(all, take, "gpu-1:changed gpu-2:changed gpu-3:changed")
	f.same(pristine, "revert")
	all = f.play(0, "testdata/plain.yml", "-e", "{sgpatch_state: reverted, sgpatch_purge: true}")
	f.want(all, take, "gpu-1:ok gpu-2:ok gpu-3:ok")
	f.same(pristine, "revert again")

	f.canary(pristine)
}

// untouched: --check leaves neither the program nor the copy that it asked.
func (f *fleet) untouched(all []result) {
	f.t.Helper()
	for host, vars := range f.inventory["gpus"].(map[string]any)["hosts"].(map[string]any) {
		for _, path := range []string{vars.(map[string]any)["sgpatch_bin_dir"].(string) + "/sgpatch", f.of(all, host, "sgpatch : Make a place for the program that only --check needs").Result.Path} {
			if _, err := os.Lstat(path); path == "" || !os.IsNotExist(err) {
				f.t.Errorf("%s: %q is there (%v)", host, path, err)
			}
		}
	}
}

// drift: somebody edits our lines on one host; it is said and left alone, and
// the others are none the worse.
func (f *fleet) drift(patched map[string]string) {
	f.t.Helper()
	path := filepath.Join(f.roots[1], class)
	st, err := os.Stat(path)
	if err != nil {
		f.t.Fatal(err)
	}
	ours := sshd.Read(f.t, path)
	write(f.t, path, strings.Replace(ours, "forced = False", "forced = True", 1))
	edited := f.installs()
	all := f.play(2, "testdata/site.yml", "-e", "sgpatch_state=verified")
	f.want(all, judge, "gpu-1:ok gpu-2:failed gpu-3:ok")
	if r := f.of(all, "gpu-2", judge).Result; r.Rc != 1 || r.Changed || !strings.Contains(r.Msg, "it does not hold") || !strings.Contains(r.Msg, path) {
		f.t.Errorf("verified: %d %v %s", r.Rc, r.Changed, r.Msg)
	}
	all = f.play(2, "testdata/site.yml")
	f.want(all, put, "gpu-1:ok gpu-2:failed gpu-3:ok")
	if r := f.of(all, "gpu-2", put).Result; r.Rc != 3 || r.Changed || !strings.Contains(r.Msg, "nothing was changed") || !strings.Contains(r.Msg, path) || !strings.Contains(r.Msg, "\nnext: ") {
		f.t.Errorf("applied: %d %v %s", r.Rc, r.Changed, r.Msg)
	}
	f.same(edited, "refused")
	write(f.t, path, ours)
	if err := os.Chtimes(path, st.ModTime(), st.ModTime()); err != nil {
		f.t.Fatal(err)
	}
	f.same(patched, "mended")
}

// canary: the first host refuses, and no other is touched.
func (f *fleet) canary(pristine map[string]string) {
	f.t.Helper()
	path := filepath.Join(f.roots[0], class)
	write(f.t, path, strings.Replace(sshd.Read(f.t, path), "full_nvlink", "full_nvlink_or_so", 1))
	edited := f.installs()
	all := f.play(2, "rolling.yml")
	f.want(all, put, "gpu-1:failed")
	if slices.ContainsFunc(all, func(r result) bool { return r.Host != "gpu-1" }) {
		f.t.Errorf("it went on: %+v", all)
	}
	f.same(edited, "the canary failed")
	if len(snapshot.Differ(pristine, edited)) != 1 {
		f.t.Error("more than the canary is other than pristine")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestWrongVariable: a variable of the role that cannot be is an error of
// Ansible, before a host is changed.
func TestWrongVariable(t *testing.T) {
	c := newControl(t)
	c.inventory = map[string]any{"gpus": map[string]any{"hosts": map[string]any{"here": map[string]any{"ansible_connection": "local", "ansible_python_interpreter": interpreter(t), "sgpatch_binary_dir": c.dir, "sgpatch_bin_dir": c.dir}}}}
	for arg, words := range map[string]string{
		"sgpatch_state=gone":           "value of sgpatch_state must be one of: applied, reverted, verified, got: gone",
		"{sgpatch_env: [1]}":           "sgpatch_env",
		"sgpatch_root=/nowhere-at-all": "There is no sgpatch-linux-",
	} {
		all := c.play(2, "rolling.yml", "-e", arg)
		failed := slices.IndexFunc(all, func(r result) bool { return r.Outcome == "failed" })
		if failed < 0 || !strings.Contains(all[failed].Result.Msg, words) || outcomes(all, put) != "" {
			t.Errorf("%s: %+v", arg, all)
		}
	}
}
