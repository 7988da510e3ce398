package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"sgpatch/fixtures/snapshot"
	"sgpatch/fixtures/sshd"
	"sgpatch/fixtures/tree"
)

// lab is a server on the loopback, with names for it and an install in its home.
type lab struct {
	*sshd.Server
	t    *testing.T
	home string
	root string
}

func newLab(t *testing.T, lines ...string) *lab {
	t.Helper()
	s := sshd.New(t, lines...)
	l := &lab{Server: s, t: t, home: s.Home(t, s.Known(t, "ed25519")), root: s.Far() + "/site"}
	sshd.Write(t, l.home+"/.ssh/config", fmt.Sprintf("Host gpu-*\n  HostName 127.0.0.1\n  Port %s\n  User %s\nHost dead-*\n  HostName 127.0.0.1\n  Port %s\n", s.Port, s.User, sshd.FreePort(t)))
	l.install(l.root)
	return l
}

func (l *lab) install(root string) {
	l.t.Helper()
	if err := os.MkdirAll(root, 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := tree.Write(root); err != nil {
		l.t.Fatal(err)
	}
}

// run runs a line; ROOT in it is the install's root.
func (l *lab) run(line string) (code int, stdout, stderr string) {
	var o, e bytes.Buffer
	args := []string{"sgpatch"}
	for _, a := range strings.Fields(line) {
		args = append(args, strings.ReplaceAll(a, "ROOT", l.root))
	}
	code = run(append(args, "--connect-timeout", "60s"), &o, &e)
	return code, o.String(), e.String()
}

// reports runs a line with --json and holds what it prints against the schema.
func (l *lab) reports(line string) (code int, all []Report) {
	l.t.Helper()
	schema := reportSchema(l.t)
	code, stdout, stderr := l.run(line + " --json")
	for dec := json.NewDecoder(strings.NewReader(stdout)); ; {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err == io.EOF {
			break
		} else if err != nil {
			l.t.Fatalf("%s: %v: %s%s", line, err, stdout, stderr)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err == nil {
			err = schema.Validate(doc)
		}
		if err != nil {
			l.t.Errorf("%s: %v: %s", line, err, raw)
		}
		var r Report
		if err := json.Unmarshal(raw, &r); err != nil {
			l.t.Errorf("%s: %v", line, err)
		}
		all = append(all, r)
	}
	highest := 0
	for _, r := range all {
		highest = max(highest, r.Exit)
	}
	if code != highest {
		l.t.Errorf("%s: exit %d, the highest is %d", line, code, highest)
	}
	return code, all
}

// want demands hosts and exits, as "gpu-1:0 dead-1:4".
func (l *lab) want(line, hosts string) []Report {
	l.t.Helper()
	_, all := l.reports(line)
	var got []string
	for _, r := range all {
		got = append(got, fmt.Sprintf("%s:%d", r.Host, r.Exit))
	}
	if strings.Join(got, " ") != hosts {
		l.t.Errorf("%s: %s, want %s (%+v)", line, got, hosts, all)
	}
	return all
}

// TestFleet runs every command over SSH.
func TestFleet(t *testing.T) {
	l := newLab(t)
	before, err := snapshot.Of(l.root)
	if err != nil {
		t.Fatal(err)
	}
	l.want("status --root ROOT --host gpu-1 --host dead-1 --host gpu-2", "gpu-1:0 dead-1:4 gpu-2:0")
	l.want("verify --root ROOT --host gpu-1", "gpu-1:1")
	l.want("apply nothing --root ROOT --host gpu-1", "gpu-1:2")
	l.want("apply -n --diff --root ROOT --host gpu-1", "gpu-1:0")
	r := l.want("apply --reason it's_\\a_\"try\"_$HOME --root ROOT --host gpu-1 nccl-pcie force-custom-ar-pcie", "gpu-1:0")
	if len(r) == 1 && (len(r[0].Changed) == 0 || r[0].Receipt.Last.Reason != "it's_\\a_\"try\"_$HOME") {
		t.Errorf("%+v", r[0].Receipt)
	}
	l.want("verify --root ROOT --host gpu-1 --host gpu-2 --parallel 1", "gpu-1:0 gpu-2:0")
	l.want("verify --fast --root ROOT --host gpu-1", "gpu-1:0")
	for _, c := range []string{"show nccl-pcie --root ROOT", "list --root ROOT", "history", "history --limit 1", "history --csv", "doctor --root ROOT", "version"} {
		if r := l.want(c+" --host gpu-1", "gpu-1:0"); strings.HasPrefix(c, "history") && len(r[0].Entries) != 1 {
			t.Errorf("%s: %v", c, r[0].Entries)
		}
	}
	if left, _ := filepath.Glob(l.home + "/*"); len(left) != 1 {
		t.Errorf("left here: %v", left)
	}
	l.text()
	l.want("revert --purge --root ROOT --host gpu-1", "gpu-1:0")
	after, err := snapshot.Of(l.root)
	if d := snapshot.Differ(before, after); err != nil || len(d) > 0 {
		t.Errorf("%v %v", err, d)
	}
}

// text: what a host said is printed as if it had been said here.
func (l *lab) text() {
	l.t.Helper()
	t := l.t
	t.Setenv("SGPATCH_STATE_DIR", l.Far()+"/state")
	for _, c := range []string{"status --root ROOT", "status -v --root ROOT", "verify --root ROOT", "list --root ROOT", "list -v --root ROOT", "history", "history --markdown", "doctor --root ROOT", "doctor --all --root ROOT", "show force-custom-ar-pcie --root ROOT", "version"} {
		var o, e bytes.Buffer
		here := run(append([]string{"sgpatch"}, strings.Fields(strings.ReplaceAll(c, "ROOT", l.root))...), &o, &e)
		there, stdout, stderr := l.run(c + " --host gpu-1")
		if here != there || o.String() != stdout || e.String() != stderr {
			t.Errorf("%s: here %d\n%s%s\nthere %d\n%s%s", c, here, &o, &e, there, stdout, stderr)
		}
	}
	code, stdout, stderr := l.run("verify --root ROOT --host gpu-1 --host dead-1")
	if code != 4 || !strings.Contains(stdout, "== gpu-1\n") || !strings.HasSuffix(stdout, "2 hosts: 1 hold, 1 not reached (dead-1)\n") || !strings.HasPrefix(stderr, "== dead-1\nsgpatch: dead-1: ") || !strings.Contains(stderr, "next: ") {
		t.Errorf("%d\n%s\n%s", code, stdout, stderr)
	}
	if code, stdout, stderr := l.run("verify -q --root ROOT --host gpu-1 --host gpu-2"); code != 0 || stdout+stderr != "" {
		t.Errorf("-q: %d %s%s", code, stdout, stderr)
	}
}

// TestFleetStops: after a failure apply goes on to nobody else.
func TestFleetStops(t *testing.T) {
	l := newLab(t)
	hosts := " --root ROOT --host gpu-1 --host dead-1 --host gpu-2 --host gpu-3"
	l.want("apply --parallel 1"+hosts, "gpu-1:0 dead-1:4 gpu-2:3 gpu-3:3")
	l.want("apply --parallel 1 --keep-going"+hosts, "gpu-1:0 dead-1:4 gpu-2:0 gpu-3:0")
	l.want("revert --parallel 1"+hosts, "gpu-1:0 dead-1:4 gpu-2:0 gpu-3:0")
	l.want("apply --canary 1 --root ROOT --host dead-1 --host gpu-2 --host gpu-3", "dead-1:4 gpu-2:3 gpu-3:3")
	l.want("status --root ROOT --host gpu-1", "gpu-1:0")
	r := l.want("apply --canary 2"+hosts, "gpu-1:0 dead-1:4 gpu-2:3 gpu-3:3")
	if len(r) == 4 && (r[3].Findings[0].Code != "not-started" || !strings.Contains(r[3].Hint, "--keep-going")) {
		t.Errorf("%+v", r[3])
	}
	file := filepath.Join(t.TempDir(), "hosts")
	sshd.Write(t, file, "# ours\ngpu-1   # first\n\ngpu-1\ngpu-2\n")
	l.want("status --root ROOT --host gpu-3 --hosts "+file, "gpu-3:0 gpu-1:0 gpu-2:0")
}

// TestFleetTakesBack: what this run applied goes, what was there before stays.
func TestFleetTakesBack(t *testing.T) {
	l := newLab(t)
	before, err := snapshot.Of(l.root)
	if err != nil {
		t.Fatal(err)
	}
	hosts := " --root ROOT --parallel 1 --host gpu-1 --host dead-1 --host gpu-2"
	r := l.want("apply --revert-on-failure --reason why"+hosts, "gpu-1:5 dead-1:4 gpu-2:3")
	if len(r) == 3 && (r[0].Command != "apply" || !strings.Contains(r[0].Error, "dead-1 failed")) {
		t.Errorf("%+v", r[0])
	}
	l.want("revert --purge --root ROOT --host gpu-1", "gpu-1:0")
	after, err := snapshot.Of(l.root)
	if d := snapshot.Differ(before, after); err != nil || len(d) > 0 {
		t.Errorf("%v %v", err, d)
	}
	l.want("apply nccl-pcie --root ROOT --host gpu-1", "gpu-1:0")
	l.want("apply --revert-on-failure force-custom-ar-pcie nccl-pcie"+hosts, "gpu-1:5 dead-1:4 gpu-2:3")
	l.want("verify nccl-pcie --root ROOT --host gpu-1", "gpu-1:0")
	l.want("verify force-custom-ar-pcie --root ROOT --host gpu-1", "gpu-1:1")
	l.want("apply --revert-on-failure nccl-pcie --env NCCL_PROTO=Simple"+hosts, "gpu-1:0 dead-1:4 gpu-2:3")
	l.want("apply --revert-on-failure --root ROOT --host gpu-1", "gpu-1:0")
}

// TestFleetUsage: what is wrong with the line is said before anybody is asked.
func TestFleetUsage(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	sshd.Write(t, bad, "gpu-1\n-oProxyCommand=x\n")
	empty := filepath.Join(dir, "empty")
	sshd.Write(t, empty, "# none\n")
	for line, words := range map[string]string{
		"verify --host a -- true":               "takes no --host",
		"alias --host a " + dir:                 "takes no --host",
		"status --host -oX":                     "not the name of a host",
		"status --host a;b":                     "not the name of a host",
		"status --host a:99999":                 "not a port",
		"status --host @a":                      "no user",
		"status --become":                       "--become goes with --host",
		"apply --canary 2":                      "--canary goes with --host",
		"status --canary 2 --host a":            "unknown flag",
		"apply --canary 0 --host a":             "at least one",
		"status --parallel 0 --host a":          "at least one",
		"status --connect-timeout -1s --host a": "not negative",
		"status --hosts " + bad:                 bad + ":2",
		"status --hosts " + empty:               "no host in it",
		"status --hosts " + dir + "/none":       "no such file",
		"status --host a --ssh-command=":        "empty",
	} {
		var o, e bytes.Buffer
		if code := run(append([]string{"sgpatch"}, strings.Fields(line)...), &o, &e); code != 2 || !strings.Contains(e.String(), words) || o.Len() > 0 {
			t.Errorf("%s: %d %s%s", line, code, &o, &e)
		}
	}
}

// TestFleetCarriesSets: the user's own sets travel along, and stay nowhere.
func TestFleetCarriesSets(t *testing.T) {
	l := newLab(t)
	sets := filepath.Join(t.TempDir(), "sets")
	sshd.Write(t, sets+"/mine/manifest.toml", "id = \"mine\"\nversion = \"1\"\ntitle = \"mine\"\n[[env]]\nname = \"SGLANG_MINE\"\nvalue = \"it's 'quoted' $HOME\"\n")
	sshd.Write(t, sets+"/notes/secret", "not a set")
	if code, _, stderr := l.run("list --patches " + sets + " --host gpu-1"); code != 0 {
		t.Fatal(stderr)
	}
	l.want("apply mine --root ROOT --host gpu-1 --patches "+sets, "gpu-1:0")
	if text := sshd.Read(t, l.root+"/sitecustomize.py"); !strings.Contains(text, "SGLANG_MINE") {
		t.Error(text)
	}
	l.want("verify mine --root ROOT --host gpu-1 --patches "+sets, "gpu-1:0")
	l.want("revert mine --root ROOT --host gpu-1", "gpu-1:0")
	sshd.Write(t, sets+"/mine/manifest.toml", "id = 7")
	if code, _, stderr := l.run("apply mine --root ROOT --host dead-1 --patches " + sets); code != 3 || !strings.Contains(stderr, "manifest.toml") {
		t.Errorf("%d %s", code, stderr)
	}
}

// TestMemory: what travels is a file system like any other.
func TestMemory(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"a/manifest.toml", "a/v1/x.diff", "a/v1/y.diff", "a/deep/er/z", "b/manifest.toml", "other/file", "top"} {
		sshd.Write(t, filepath.Join(dir, f), "text of "+f)
	}
	c, err := carry(dir)
	if err != nil || len(c.Files) != 5 {
		t.Fatal(err, c.Files)
	}
	if err := fstest.TestFS(c.Files, "a/manifest.toml", "a/v1/x.diff", "a/v1/y.diff", "a/deep/er/z", "b/manifest.toml"); err != nil {
		t.Error(err)
	}
}

// TestFleetBecome: sudo is asked for nothing but to start the program.
func TestFleetBecome(t *testing.T) {
	force := `ForceCommand PATH=DIR/bin:$PATH; export PATH; eval "$SSH_ORIGINAL_COMMAND"`
	if os.Geteuid() == 0 { // as somebody who is not root already
		force = `ForceCommand PATH=DIR/bin:$PATH; export PATH; exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c "$SSH_ORIGINAL_COMMAND"`
	}
	l := newLab(t, force)
	if os.Geteuid() == 0 {
		for d := l.Far(); d != os.TempDir(); d = filepath.Dir(d) {
			os.Chmod(d, 0o711)
		}
		if err := os.Chown(l.Far(), 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	os.MkdirAll(l.Dir+"/bin", 0o755)
	sudo := func(script string) {
		if err := os.WriteFile(l.Dir+"/bin/sudo", []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sudo("echo 'sudo: a password is required' >&2; exit 1\n")
	l.want("version --host gpu-1", "gpu-1:0")
	r := l.want("version --become --host gpu-1", "gpu-1:4")
	if len(r) == 1 && (!strings.Contains(r[0].Error, "a password is required") || !strings.Contains(r[0].Hint, "NOPASSWD")) {
		t.Errorf("%+v", r[0])
	}
	sudo("[ \"$1 $2\" = '-n --' ] || exit 9\nshift 2\ntouch " + l.Far() + "/became\nexec \"$@\"\n")
	l.want("version --become --host gpu-1", "gpu-1:0")
	if _, err := os.Stat(l.Far() + "/became"); err != nil {
		t.Error(err)
	}
}

// TestFleetBySystemSSH: with --ssh-command the system's ssh is the way.
func TestFleetBySystemSSH(t *testing.T) {
	l := newLab(t)
	config := l.home + "/.ssh/config" // ssh itself looks into the account's home, not into $HOME
	ssh := fmt.Sprintf("%s/ssh", l.home)
	if err := os.WriteFile(ssh, []byte("#!/bin/sh\nexec ssh -o IdentityFile="+l.home+"/.ssh/id_ed25519 -o IdentitiesOnly=yes -o GlobalKnownHostsFile="+l.home+"/.ssh/known_hosts -o UserKnownHostsFile="+l.home+"/.ssh/new -F "+config+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.want("apply --root ROOT --host gpu-1 --ssh-command "+ssh, "gpu-1:0")
	l.want("status --root ROOT --host dead-1 --host gpu-2 --ssh-command "+ssh, "dead-1:4 gpu-2:0")
	l.want("status --host gpu-1 --ssh-command "+ssh+"-none", "gpu-1:4")
	sshd.Write(t, l.home+"/.ssh/known_hosts", "")
	r := l.want("status --root ROOT --host gpu-1 --ssh-command "+ssh, "gpu-1:4")
	if len(r) == 1 && !strings.Contains(r[0].Error, "verification failed") {
		t.Errorf("%+v", r[0].Error)
	}
	l.want("status --root ROOT --host gpu-1 --accept-new --ssh-command "+ssh, "gpu-1:0")
}

// TestFleetInterrupted: an interrupt ends what has not begun to commit.
func TestFleetInterrupted(t *testing.T) {
	l := newLab(t)
	l.want("apply --root ROOT --host gpu-1", "gpu-1:0")
	before, err := snapshot.Of(l.root)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(l.root+"/.sgpatch/lock", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "revert", "--json", "--root", l.root, "--lock-timeout", "100s", "--parallel", "1", "--host", "gpu-1", "--host", "gpu-2")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "SGPATCH_") }), "SGPATCH_TEST_RUN=1")
	var out bytes.Buffer
	cmd.Stdout = &out
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || time.Since(start) > 30*time.Second || strings.Count(out.String(), `"exit": 130`) != 2 {
		t.Errorf("exit %d after %s: %s", code, time.Since(start), &out)
	}
	lock.Close()
	after, err := snapshot.Of(l.root)
	if d := snapshot.Differ(before, after); err != nil || len(d) > 0 {
		t.Errorf("%v %v", err, d)
	}
}

const class = "sglang/srt/distributed/device_communicators/custom_all_reduce.py"

// TestFleetServerDies: whatever was reached, the next command puts it right.
func TestFleetServerDies(t *testing.T) {
	l := newLab(t)
	l.want("apply --root ROOT --host gpu-1", "gpu-1:0")
	whole := sshd.Read(t, l.root+"/"+class)
	l.want("revert --root ROOT --host gpu-1", "gpu-1:0")
	pristine := sshd.Read(t, l.root+"/"+class)
	for i := range 4 {
		done := make(chan int)
		go func() {
			code, _, _ := l.run("apply --root ROOT --host gpu-1")
			done <- code
		}()
		time.Sleep(time.Duration(i+1) * 250 * time.Millisecond)
		l.Stop()
		if code := <-done; code != 0 && code != 4 {
			t.Errorf("exit %d", code)
		}
		if text := sshd.Read(t, l.root+"/"+class); text != whole && text != pristine {
			t.Error("the file is neither old nor new")
		}
		l.Start(t)
		l.want("apply --root ROOT --host gpu-1", "gpu-1:0")
		l.want("verify --root ROOT --host gpu-1", "gpu-1:0")
		l.want("revert --root ROOT --host gpu-1", "gpu-1:0")
	}
}
