package contrib

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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
	file, python string
	make         func(t *testing.T, root string)
}

var layouts = []layout{
	{"editable", "python3", func(t *testing.T, root string) {
		sglang(t, root+checkout)
		site := strings.TrimSpace(process{root: root}.exits(t, 0, "python3", "-c", "import site; print(site.getsitepackages()[0])"))
		must(t, os.MkdirAll(root+site, 0o755), os.WriteFile(root+site+"/__editable__.sglang-0.0.0.pth", []byte("import __editable___sglang_0_0_0_finder; __editable___sglang_0_0_0_finder.install()"), 0o644),
			os.WriteFile(root+site+"/__editable___sglang_0_0_0_finder.py", []byte(finder), 0o644))
		// such bytecode is never compared with its source
		process{root: root}.exits(t, 0, "python3", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", checkout)
	}},
	{"venv", "/opt/sglang/bin/python3", func(t *testing.T, root string) {
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
