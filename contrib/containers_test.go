// Package contrib holds the tests of the files around it: every command line in
// them is taken from the file and run.
package contrib

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestScratch: the program needs nothing of an image.
func TestScratch(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	stages := stagesOf(t, "containers/Dockerfile.sgpatch")
	last := stages[len(stages)-1]
	root := t.TempDir()
	must(t, copyTo(binary(), root+last.one("COPY").words[1]))
	cmd := exec.Command(last.one("ENTRYPOINT").words[0], "version")
	cmd.Env, cmd.SysProcAttr, cmd.Dir = []string{}, &syscall.SysProcAttr{Chroot: root}, "/"
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "sgpatch ") {
		t.Errorf("%v: %s", err, out)
	}
}

// play builds the last stage of a Dockerfile on an image: each COPY and RUN is a
// layer. It returns the layers that it made, and the exit status of the last RUN.
func (im *image) play(t *testing.T, last stage, p process) (layers []string, code int) {
	t.Helper()
	for _, s := range last.steps {
		switch s.name {
		case "COPY":
			if s.flags["from"] != "sgpatch" || s.words[0] != "/sgpatch" {
				t.Fatalf("nobody has %v", s)
			}
			layers = append(layers, im.change(t, func(root string) { must(t, copyTo(binary(), root+s.words[1])) }))
		case "RUN":
			layers = append(layers, im.change(t, func(root string) {
				p.root = root
				var out string
				out, code = p.run(t, "/bin/sh", "-c", s.line)
				t.Logf("RUN %s\n%s", s.line, out)
			}))
		}
	}
	return layers, code
}

// surroundings are what a container may be run in.
var surroundings = []struct {
	name     string
	uid, gid int
	readOnly bool
	env      []string
}{
	{name: "root without HOME"},
	{name: "root and read-only", readOnly: true, env: []string{"HOME=/root"}},
	{name: "a user", uid: 1000, gid: 1000, env: []string{"HOME=/home/nobody-made-it"}},
	{name: "any uid of group 0 and read-only", uid: 1000680000, gid: 0, readOnly: true, env: []string{"HOME=/"}},
	{name: "no bytecode is written", env: []string{"PYTHONDONTWRITEBYTECODE=1"}},
	{name: "bytecode elsewhere", env: []string{"PYTHONPYCACHEPREFIX=/tmp/pyc"}},
}

// TestImages builds on both layouts, ships the result, and starts it.
func TestImages(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	for _, l := range layouts {
		t.Run(l.file, func(t *testing.T) {
			stages := stagesOf(t, "containers/Dockerfile."+l.file)
			b := built{layout: l, last: stages[len(stages)-1], base: newImage(t)}
			b.base.change(t, func(root string) { l.make(t, root) })
			b.base.shipped(t)
			b.image = b.base.copied(t)
			layers, code := b.image.play(t, b.last, process{})
			if code != 0 {
				t.Fatalf("the build ends with %d", code)
			}
			onlyOurs(t, layers[len(layers)-1])
			b.image.shipped(t)
			b.starts(t)
			t.Run("built as a user", b.builtAsUser)
			t.Run("a build that goes on without", b.goesOn)
			t.Run("taken out in another layer", b.takenOut)
		})
	}
}

// built is what a Dockerfile made of a base.
type built struct {
	layout
	last        stage
	base, image *image
}

func (b built) entry() []string { return slices.Clone(b.last.one("ENTRYPOINT").words) }

// starts the server in each of the surroundings, and sees that it is not started
// where the patch is switched off.
func (b built) starts(t *testing.T) {
	for _, s := range surroundings {
		t.Run(s.name, func(t *testing.T) {
			upper := ""
			if !s.readOnly {
				upper = b.image.copied(t).next(t)
			}
			b.image.mounted(t, b.image.layers, upper, func(root string) {
				p := process{root: root, uid: s.uid, gid: s.gid, env: s.env}
				p.exits(t, 0, "sgpatch", "verify", "--fast", "--python", b.python)
				p.serves(t, append(b.entry(), "--tp", "8"), "--tp", "8")
				if out := p.exits(t, 1, append(b.entry(), "--disable-custom-all-reduce")...); !strings.Contains(out, "--disable-custom-all-reduce") {
					t.Errorf("it is not said why:\n%s", out)
				}
				p.env = append(p.env, gate+"=0")
				p.exits(t, 1, b.entry()...)
			})
		})
	}
}

// builtAsUser has USER before RUN.
func (b built) builtAsUser(t *testing.T) {
	layers, code := b.base.copied(t).play(t, b.last, process{uid: 1000, gid: 1000})
	if left := contents(t, layers[len(layers)-1]); code != 3 || len(left) > 0 {
		t.Errorf("the build ends with %d and leaves %q", code, left)
	}
}

// goesOn runs the line that the page gives for a build that may go without the
// patch, on an SGLang that no variant fits.
func (b built) goesOn(t *testing.T) {
	page, err := os.ReadFile("containers/README.md")
	must(t, err)
	_, line, _ := strings.Cut(string(page), "`RUN ")
	line, _, _ = strings.Cut(line, "`")
	if !strings.HasPrefix(line, "sgpatch apply") {
		t.Fatalf("the page has no such line: %q", line)
	}
	im := b.base.copied(t)
	p := process{env: []string{"VIRTUAL_ENV=/opt/sglang"}}
	im.change(t, func(root string) {
		p.root = root
		must(t, copyTo(binary(), root+"/usr/local/bin/sgpatch"))
		at := strings.TrimSpace(p.exits(t, 0, b.python, "-c", "import sglang; print(sglang.__path__[0])"))
		must(t, os.WriteFile(root+filepath.Dir(at)+"/"+gated+".py", []byte("rewritten = True\n"), 0o644))
	})
	layer := im.change(t, func(root string) {
		p.root = root
		p.exits(t, 0, "/bin/sh", "-c", line)
		p.exits(t, 3, "sgpatch", "apply")
	})
	if left := contents(t, layer); len(left) > 0 {
		t.Errorf("%s leaves %q", line, left)
	}
}

// takenOut reverts in a layer of its own.
func (b built) takenOut(t *testing.T) {
	im := b.image.copied(t)
	im.change(t, func(root string) {
		p := process{root: root}
		p.exits(t, 0, "sgpatch", "revert", "--python", b.python, "--result", "38.3 tok/s, was 82")
		p.exits(t, 1, b.entry()...)
	})
	im.mounted(t, im.layers, "", func(now string) {
		b.base.mounted(t, b.base.layers, "", func(was string) { sameSources(t, was, now) })
	})
}

// serves starts a command as pid 1 of a container, and stops it as a runtime does.
func (p process) serves(t *testing.T, argv []string, args ...string) {
	t.Helper()
	cmd := p.command(t, argv...)
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	must(t, err, cmd.Start())
	var line string
	for r := bufio.NewScanner(out); !strings.HasPrefix(line, "{") && r.Scan(); { // behind what apply prints
		line = r.Text()
	}
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	var got started
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Fatalf("%q: %v: %q\n%s", argv, err, line, said.String())
	}
	if d := cmp.Diff(started{Pid: 1, Uid: p.uid, Args: args, Gate: "1", Patched: true}, got); d != "" {
		t.Errorf("%q: %s\n%s", argv, d, said.String())
	}
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("%q: on SIGTERM it ended with %d", argv, code)
	}
}

// onlyOurs: the layer of apply has the gate's files, the entry, the records and
// the history, takes away bytecode, and has nothing else, in all less than 1 MB.
func onlyOurs(t *testing.T, layer string) {
	t.Helper()
	all := contents(t, layer)
	seen := 0
	size := int64(0)
	for _, path := range all {
		if st, err := os.Stat(layer + path); err == nil {
			size += st.Size()
		}
		switch {
		case strings.Contains(path, gated) && strings.HasSuffix(path, ".py"):
			seen++
		case strings.Contains(path, "/.sgpatch/"), strings.HasPrefix(path, "/var/lib/sgpatch/"), strings.HasSuffix(path, "/sitecustomize.py"):
		case strings.HasPrefix(path, "-") && strings.HasSuffix(path, ".pyc"):
		default:
			t.Errorf("the layer has %s", path)
		}
	}
	if seen == 0 || size > 1<<20 {
		t.Errorf("%d files of SGLang and %d bytes in %q", seen, size, all)
	}
}

// sameSources: SGLang and the sitecustomize files are as they were.
func sameSources(t *testing.T, was, now string) {
	t.Helper()
	count := 0
	for _, dir := range []string{checkout, "/opt/sglang", "/etc", "/usr/local/lib"} {
		for _, a := range files(t, was+dir) {
			if !strings.HasSuffix(a, ".py") {
				continue
			}
			x, errx := os.ReadFile(was + dir + a)
			y, erry := os.ReadFile(now + dir + a)
			must(t, errx, erry)
			if count++; string(x) != string(y) {
				t.Errorf("%s is not as it was", dir+a)
			}
		}
		if d := cmp.Diff(sources(files(t, was+dir)), sources(files(t, now+dir))); d != "" {
			t.Error(d)
		}
	}
	if count < 5 {
		t.Errorf("only %d files were compared", count)
	}
}

func files(t *testing.T, dir string) []string {
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	return contents(t, dir)
}

func sources(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(p string) bool {
		return strings.Contains(p, "/.sgpatch/") || strings.Contains(p, "/__pycache__/")
	})
}

// TestStockImage plays contrib/kubernetes/apply on an image that is not patched:
// the initContainer brings the program, and the container patches itself.
func TestStockImage(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	stages := stagesOf(t, "containers/Dockerfile.sgpatch")
	script := scriptOf(t, "kubernetes/apply/kustomization.yaml")
	im := newImage(t)
	im.change(t, func(root string) {
		layouts[0].make(t, root)
		must(t, os.Mkdir(root+"/opt", 0o755), os.Mkdir(root+"/opt/sgpatch", 0o755)) // the volume
		must(t, copyTo(binary(), root+stages[1].one("COPY").words[1]))
		process{root: root}.exits(t, 0, stages[1].one("CMD").words...)
		must(t, os.Remove(root+"/sgpatch"))
	})
	argv := []string{"/bin/sh", "-c", script, "sgpatch", "python3", "-m", "sglang.launch_server", "--served-model-name", "a b", "$x"}
	for _, start := range []string{"first", "restarted"} { // from the image each time
		im.mounted(t, im.layers, im.copied(t).next(t), func(root string) {
			t.Log(start)
			process{root: root}.serves(t, argv, argv[7:]...)
			process{root: root}.serves(t, argv, argv[7:]...) // and once more, as it was left
		})
	}
	im.mounted(t, im.layers, "", func(root string) {
		out := process{root: root}.exits(t, 3, argv...)
		if !strings.Contains(out, "nothing was changed") || !strings.Contains(out, "read-only") || strings.Contains(out, "does not do") {
			t.Errorf("on a read-only root filesystem it says:\n%s", out)
		}
	})
}

// scriptOf is the one shell line of the component, which stands once for each
// template.
func scriptOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	var all []string
	for _, line := range strings.Split(string(text), "\n") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "value: '"); ok {
			all = append(all, strings.TrimSuffix(v, "'"))
		}
	}
	if len(all) != 3 || len(slices.Compact(slices.Clone(all))) != 1 {
		t.Fatalf("%s: %q", path, all)
	}
	return all[0]
}
