// Package contrib holds the tests of the files around it: every command line in
// them is taken from the file and run.
package contrib

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sgpatch/fixtures/python"
	"sgpatch/fixtures/tree"
	"sgpatch/fixtures/wheels"
)

const (
	gate     = "SGLANG_FORCE_CUSTOM_AR_PCIE"
	checkout = "/sgl-workspace/sglang/python"
	gated    = "sglang/srt/distributed/device_communicators/custom_all_reduce"
)

// server stands in for SGLang's: it says who it is and which bytecode of the gate's
// file it would run, and waits for SIGTERM.
const server = `
import importlib.machinery, json, os, signal, sys, time, sglang
def strings(code):
    for c in code.co_consts:
        yield from strings(c) if hasattr(c, "co_consts") else [c]
path = os.path.join(os.path.dirname(sglang.__file__), "srt/distributed/device_communicators/custom_all_reduce.py")
utils = path.replace(".py", "_utils.py")
known = {c for p in (path, utils) if os.path.exists(p) for c in strings(importlib.machinery.SourceFileLoader("m", p).get_code("m"))}
signal.signal(signal.SIGTERM, lambda *a: sys.exit(7))
print(json.dumps({"pid": os.getpid(), "uid": os.getuid(), "args": sys.argv[1:], "gate": os.environ.get("` + gate + `"), "patched": "` + gate + `" in known}), flush=True)
while True:
    time.sleep(0.02)
`

// finder is what setuptools makes of an editable install in the form of SGLang's:
// not a path, because the package lies beside its pyproject.toml.
const finder = `
import sys
from importlib.util import spec_from_file_location
MAPPING: dict[str, str] = {'sglang': '` + checkout + `/sglang'}
class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname in MAPPING:
            return spec_from_file_location(fullname, MAPPING[fullname] + "/__init__.py")
def install():
    sys.meta_path.append(_EditableFinder)
`

// started is what the server says.
type started struct {
	Pid, Uid int
	Args     []string
	Gate     string
	Patched  bool
}

// layout makes an image as the official ones are: where SGLang is, and which
// interpreter has it.
type layout struct {
	file, python, root string
	make               func(t *testing.T, root string)
}

var layouts = []layout{
	{"editable", "python3", checkout, func(t *testing.T, root string) {
		sglang(t, root+checkout)
		site := strings.TrimSpace(process{root: root}.exits(t, 0, "python3", "-c", "import site; print(site.getsitepackages()[0])"))
		must(t, os.MkdirAll(root+site, 0o755), os.WriteFile(root+site+"/__editable__.sglang-0.0.0.pth", []byte("import __editable___sglang_0_0_0_finder; __editable___sglang_0_0_0_finder.install()"), 0o644),
			os.WriteFile(root+site+"/__editable___sglang_0_0_0_finder.py", []byte(finder), 0o644))
		// such bytecode is never compared with its source
		process{root: root}.exits(t, 0, "python3", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", checkout)
	}},
	{"venv", "/opt/sglang/bin/python3", "", func(t *testing.T, root string) {
		p := process{root: root}
		p.exits(t, 0, "python3", "-m", "venv", "--without-pip", "/opt/sglang")
		site := strings.TrimSpace(p.exits(t, 0, "/opt/sglang/bin/python3", "-c", "import site; print(site.getsitepackages()[0])"))
		sglang(t, root+site)
		p.exits(t, 0, "/opt/sglang/bin/python3", "-m", "compileall", "-q", site)
	}},
}

// sglang lays the small SGLang down, or a real release if SGPATCH_IMAGE_RELEASE
// names one, with a server that needs no GPU.
func sglang(t *testing.T, dir string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	if release := os.Getenv("SGPATCH_IMAGE_RELEASE"); release != "" {
		must(t, wheels.Unpack(release, dir), os.WriteFile(dir+"/sglang/__init__.py", nil, 0o644))
	} else {
		must(t, tree.Write(dir))
	}
	must(t, os.WriteFile(dir+"/sglang/launch_server.py", []byte(server), 0o644))
}

// program plays Dockerfile.sgpatch, once for all tests: the build, which needs this
// machine's Go, in a copy of the tree, and the image from scratch. It is the
// binary in that image.
var program = sync.OnceValues(func() (string, error) {
	stages, err := dockerfile("containers/Dockerfile.sgpatch")
	if err != nil {
		return "", err
	}
	build, last := stages[0], stages[len(stages)-1]
	if last.base != "scratch" || build.one("WORKDIR").line != "/src" {
		return "", fmt.Errorf("the images are not as this test plays them: %v", stages)
	}
	src := filepath.Join(scratch, "src")
	top, err := os.ReadDir("..")
	if err != nil {
		return "", err
	}
	for _, d := range top {
		from, to := filepath.Join("..", d.Name()), filepath.Join(src, d.Name())
		switch {
		case d.Name() == ".git" || d.Name() == "bin":
		case d.IsDir():
			err = errors.Join(err, os.CopyFS(to, os.DirFS(from)))
		default:
			err = errors.Join(err, os.MkdirAll(src, 0o755), copyTo(from, to))
		}
	}
	cmd := exec.Command("sh", "-c", build.one("RUN").line)
	cmd.Dir, cmd.Env = src, python.CleanEnv()
	if out, failed := cmd.CombinedOutput(); failed != nil {
		err = errors.Join(err, fmt.Errorf("%w: %s", failed, out))
	}
	return filepath.Join(src, strings.TrimPrefix(last.one("COPY").words[0], "/src")), err
})

// scratch is a directory for what all tests share.
var scratch string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "contrib")
	if err != nil {
		panic(err)
	}
	scratch = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func copyTo(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// stagesOf reads one of our Dockerfiles.
func stagesOf(t *testing.T, path string) []stage {
	t.Helper()
	all, err := dockerfile(path)
	must(t, err)
	return all
}

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
	if err != nil || !strings.Contains(string(out), "sgpatch 0.1.0") {
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
			last := stages[len(stages)-1]
			base := newImage(t)
			base.change(t, func(root string) { l.make(t, root) })
			base.shipped(t)
			im := base.copied(t)
			layers, code := im.play(t, last, process{})
			if code != 0 {
				t.Fatalf("the build ends with %d", code)
			}
			onlyOurs(t, layers[len(layers)-1])
			im.shipped(t)
			entry := last.one("ENTRYPOINT").words
			for _, s := range surroundings {
				t.Run(s.name, func(t *testing.T) {
					upper := ""
					if !s.readOnly {
						upper = im.copied(t).next(t)
					}
					im.mounted(t, im.layers, upper, func(root string) {
						p := process{root: root, uid: s.uid, gid: s.gid, env: s.env}
						p.exits(t, 0, "sgpatch", "verify", "--fast", "--python", l.python)
						p.serves(t, append(slices.Clone(entry), "--tp", "8"), "--tp", "8")
						if out := p.exits(t, 1, append(slices.Clone(entry), "--disable-custom-all-reduce")...); !strings.Contains(out, "--disable-custom-all-reduce") {
							t.Errorf("it is not said why:\n%s", out)
						}
						p.env = append(p.env, gate+"=0")
						p.exits(t, 1, entry...)
					})
				})
			}
			t.Run("as a user", func(t *testing.T) { // USER before RUN
				im := base.copied(t)
				layers, code := im.play(t, last, process{uid: 1000, gid: 1000})
				if code != 3 || len(contents(t, layers[len(layers)-1])) > 0 {
					t.Errorf("the build ends with %d and leaves %q", code, contents(t, layers[len(layers)-1]))
				}
			})
			t.Run("taken out in another layer", func(t *testing.T) {
				im := im.copied(t)
				im.change(t, func(root string) {
					p := process{root: root}
					p.exits(t, 0, "sgpatch", "revert", "--python", l.python, "--result", "38.3 tok/s, was 82")
					p.exits(t, 1, entry...)
				})
				im.mounted(t, im.layers, "", func(now string) {
					base.mounted(t, base.layers, "", func(was string) { sameSources(t, was, now) })
				})
			})
		})
	}
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
// the history, takes away bytecode, and has nothing else.
func onlyOurs(t *testing.T, layer string) {
	t.Helper()
	all := contents(t, layer)
	seen := 0
	for _, path := range all {
		switch {
		case strings.Contains(path, gated) && strings.HasSuffix(path, ".py"):
			seen++
		case strings.Contains(path, "/.sgpatch/"), strings.HasPrefix(path, "/var/lib/sgpatch/"), strings.HasSuffix(path, "/sitecustomize.py"):
		case strings.HasPrefix(path, "-") && strings.HasSuffix(path, ".pyc"):
		default:
			t.Errorf("the layer has %s", path)
		}
	}
	if seen == 0 {
		t.Errorf("no file of SGLang in %q", all)
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
