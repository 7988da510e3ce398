// Package ansible holds the tests of the Ansible role and of its module. They
// run the real Ansible, against real SSH servers on the loopback.
package ansible

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sgpatch/fixtures/python"
	"sgpatch/fixtures/sshd"
	"sgpatch/fixtures/tools"
	"sgpatch/fixtures/tree"
)

// class is a file that the set force-custom-ar-pcie patches.
const class = "sglang/srt/distributed/device_communicators/custom_all_reduce.py"

// control is a machine that plays are run from.
type control struct {
	t         *testing.T
	dir       string
	sockets   string // of connections that are kept; their paths have to be short
	inventory map[string]any
}

// result is what one task came to on one host, as testdata/results.py tells it.
type result struct {
	Host, Task, Outcome string
	Result              struct {
		Changed bool
		Msg     string
		Rc      int
		Path    string
		Stdout  string
		Diff    any
		Report  struct {
			Exit    int
			Changed []string
			Receipt struct{ Last struct{ Reason string } }
		}
		Warnings []any
	}
}

// what is its outcome, or "changed".
func (r result) what() string {
	if r.Outcome == "ok" && r.Result.Changed {
		return "changed"
	}
	return r.Outcome
}

// program builds sgpatch and is its path.
func program(t *testing.T, flags ...string) string {
	t.Helper()
	path := t.TempDir() + "/sgpatch"
	cmd := exec.Command("go", append(append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", path}, flags...), "../../cmd/patch")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// interpreter is the file that python3 on PATH is, without what chooses it.
func interpreter(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(sshd.Tool(t, "python3", "-c", "import sys; print(sys.executable)"))
}

func newControl(t *testing.T) *control {
	t.Helper()
	tools.Path(t, "ansible-playbook")
	t.Parallel() // Ansible takes its time for each task, on one processor
	sockets, err := os.MkdirTemp("", "cp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) }) // who listens there ends with the server
	c := &control{t: t, dir: t.TempDir(), sockets: sockets}
	sshd.Write(t, c.dir+"/ansible.cfg", "")
	return c
}

// command is one of Ansible's, with nothing of the caller's settings.
func (c *control) command(name string, args ...string) *exec.Cmd {
	path := tools.Path(c.t, name)
	cmd := exec.Command(path, args...)
	for _, kv := range python.CleanEnv() {
		if !strings.HasPrefix(kv, "ANSIBLE_") && !strings.HasPrefix(kv, "SGPATCH_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	callbacks, err := filepath.Abs("testdata")
	if err != nil {
		c.t.Fatal(err)
	}
	roles, err := filepath.Abs("roles")
	if err != nil {
		c.t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH"), "HOME="+c.dir, "PYTHONDONTWRITEBYTECODE=1", "LC_ALL=C.UTF-8",
		"ANSIBLE_HOME="+c.dir+"/.ansible", "ANSIBLE_CONFIG="+c.dir+"/ansible.cfg", "ANSIBLE_NOCOLOR=1", "ANSIBLE_LOCALHOST_WARNING=0", "ANSIBLE_PIPELINING=1",
		"ANSIBLE_ROLES_PATH="+roles, "ANSIBLE_LIBRARY="+roles+"/sgpatch/library",
		"ANSIBLE_CALLBACK_PLUGINS="+callbacks, "ANSIBLE_CALLBACKS_ENABLED=results", "SGPATCH_RESULTS="+c.dir+"/results",
		"ANSIBLE_SSH_CONTROL_PATH_DIR="+c.sockets,
		"ANSIBLE_SSH_ARGS=-F none -o ControlMaster=auto -o ControlPersist=60s -o IdentitiesOnly=yes -o UserKnownHostsFile="+c.dir+"/known_hosts -o GlobalKnownHostsFile=none")
	return cmd
}

// play runs a playbook. It ends with 0, or with bad if a host failed.
func (c *control) play(bad int, playbook string, args ...string) []result {
	c.t.Helper()
	hosts, err := json.Marshal(c.inventory)
	if err != nil {
		c.t.Fatal(err)
	}
	sshd.Write(c.t, c.dir+"/hosts.json", string(hosts))
	os.Remove(c.dir + "/results")
	cmd := c.command("ansible-playbook", append([]string{"-i", c.dir + "/hosts.json", playbook}, args...)...)
	start := time.Now()
	out, _ := cmd.CombinedOutput()
	c.t.Logf("%s %v: %s", playbook, args, time.Since(start).Round(100*time.Millisecond))
	if code := cmd.ProcessState.ExitCode(); code != bad || strings.Contains(string(out), "Traceback") {
		c.t.Fatalf("%s %v: exit %d, want %d:\n%s", playbook, args, code, bad, out)
	}
	return c.results()
}

func (c *control) results() (all []result) {
	c.t.Helper()
	f, err := os.Open(c.dir + "/results")
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	for dec := json.NewDecoder(bufio.NewReader(f)); dec.More(); {
		var r result
		if err := dec.Decode(&r); err != nil {
			c.t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// install makes a small SGLang in a new folder.
func (c *control) install(name string) (root string) {
	c.t.Helper()
	root = filepath.Join(c.dir, name)
	if err := os.MkdirAll(root, 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := tree.Write(root); err != nil {
		c.t.Fatal(err)
	}
	return root
}
