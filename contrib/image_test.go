package contrib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// searched is the PATH that an image has if it says nothing else.
const searched = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// image is a stack of layers, as overlayfs mounts them for a container: what an
// instruction changes lies in a layer of its own. The lowest is this machine's own
// system, of which only programs and libraries are seen.
type image struct {
	dir    string   // of this image alone, on a tmpfs
	layers []string // lowest first
}

// inNamespace runs the calling test in a process with a mount namespace of its
// own and reports whether this is that process.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv("SGPATCH_TEST_MOUNTS") != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	binary, err := program()
	must(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), "SGPATCH_TEST_MOUNTS="+binary)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	return false
}

// binary is the program, in the process that has the mounts.
func binary() string { return os.Getenv("SGPATCH_TEST_MOUNTS") }

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// newImage is an image with nothing but the system's programs.
func newImage(t *testing.T) *image {
	t.Helper()
	im := &image{dir: t.TempDir()}
	must(t, unix.Mount("tmpfs", im.dir, "tmpfs", 0, ""))
	t.Cleanup(func() { unix.Unmount(im.dir, unix.MNT_DETACH) })
	im.layers = []string{"/"}
	hidden := im.next(t)
	top, err := os.ReadDir("/")
	must(t, err, os.Mkdir(filepath.Join(hidden, "usr"), 0o755), unix.Mknod(filepath.Join(hidden, "usr", "local"), unix.S_IFCHR, 0))
	for _, d := range top {
		if name := d.Name(); !slices.Contains([]string{"bin", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "usr"}, name) {
			must(t, unix.Mknod(filepath.Join(hidden, name), unix.S_IFCHR, 0)) // overlayfs takes it for "not there"
		}
	}
	im.change(t, func(root string) {
		for _, d := range []string{"dev", "proc", "root", "run", "tmp", "usr/local/bin", "var/tmp"} {
			must(t, os.MkdirAll(filepath.Join(root, d), 0o755))
		}
		must(t, os.Chmod(filepath.Join(root, "tmp"), 0o1777), os.Chmod(filepath.Join(root, "root"), 0o700))
	})
	return im
}

// copied is the same image once more, to be built on in another way.
func (im *image) copied(t *testing.T) *image {
	t.Helper()
	other := &image{dir: t.TempDir(), layers: slices.Clone(im.layers)}
	must(t, unix.Mount("tmpfs", other.dir, "tmpfs", 0, ""))
	t.Cleanup(func() { unix.Unmount(other.dir, unix.MNT_DETACH) })
	return other
}

func (im *image) next(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(im.dir, fmt.Sprint("layer", len(im.layers)))
	must(t, os.Mkdir(dir, 0o755))
	im.layers = append(im.layers, dir)
	return dir
}

// mounted calls f with the image mounted: with upper "" nobody can write there.
func (im *image) mounted(t *testing.T, lower []string, upper string, f func(root string)) {
	t.Helper()
	dir, err := os.MkdirTemp(im.dir, "mount")
	must(t, err)
	root := filepath.Join(dir, "root")
	must(t, os.Mkdir(root, 0o755))
	lower = slices.Clone(lower)
	slices.Reverse(lower)
	options, flags := "lowerdir="+strings.Join(lower, ":"), uintptr(unix.MS_RDONLY)
	if upper != "" {
		work := upper + ".work" // has to lie on the same file system
		must(t, os.MkdirAll(work, 0o755))
		options, flags = options+",upperdir="+upper+",workdir="+work, 0
	}
	must(t, unix.Mount("overlay", root, "overlay", flags, options))
	defer unix.Unmount(root, unix.MNT_DETACH)
	if _, err := os.Stat(filepath.Join(root, "proc")); err == nil {
		must(t, unix.Mount("/dev", filepath.Join(root, "dev"), "", unix.MS_BIND|unix.MS_REC, ""), unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""))
	}
	f(root)
}

// change makes a layer of what f does.
func (im *image) change(t *testing.T, f func(root string)) (layer string) {
	t.Helper()
	lower := slices.Clone(im.layers)
	layer = im.next(t)
	im.mounted(t, lower, layer, f)
	return layer
}

// shipped sends all layers above the system's through tar, as a registry does:
// inodes are new, times have whole seconds, hard links between layers are gone.
func (im *image) shipped(t *testing.T) {
	t.Helper()
	for i, layer := range im.layers[1:] {
		to := layer + ".shipped"
		must(t, os.Mkdir(to, 0o755))
		out, err := exec.Command("sh", "-c", `tar -C "$0" --format=gnu -cf - . | tar -C "$1" -xpf -`, layer, to).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		im.layers[i+1] = to
	}
}

// process is a command in a container.
type process struct {
	root     string
	dir      string // "/" if it is ""
	env      []string
	uid, gid int
}

// It is killed when the test ends, or after a minute.
func (p process) command(t *testing.T, argv ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	// env is the image's, and so looks for the program in the image
	cmd := exec.CommandContext(ctx, "/usr/bin/env", append([]string{"-i"}, append(slices.Concat([]string{searched}, p.env), argv...)...)...)
	cmd.Env = []string{}
	cmd.Dir = "/" + strings.TrimPrefix(p.dir, "/")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: p.root, Credential: &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.gid)}}
	return cmd
}

// run returns both outputs together and the exit status.
func (p process) run(t *testing.T, argv ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	cmd := p.command(t, argv...)
	cmd.Stdout, cmd.Stderr = &out, &out
	var ee *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &ee) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func (p process) exits(t *testing.T, code int, argv ...string) string {
	t.Helper()
	out, got := p.run(t, argv...)
	if got != code {
		t.Errorf("%q ended with %d, want %d:\n%s", argv, got, code, out)
	}
	return out
}

// contents lists what a layer has besides directories; a path that the layer takes
// away stands with a minus.
func contents(t *testing.T, layer string) (all []string) {
	t.Helper()
	must(t, filepath.WalkDir(layer, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		sign := ""
		if d.Type()&fs.ModeCharDevice != 0 {
			sign = "-"
		}
		all = append(all, sign+strings.TrimPrefix(path, layer))
		return nil
	}))
	return all
}
