package install

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestWalk: the walk by descriptors ends where the kernel's does.
func TestWalk(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "a", "b", "f"), nil, 0o644))
	for name, to := range map[string]string{
		"up": "a/b/../..", "rel": "a/b", "abs": filepath.Join(dir, "a"), "file": "rel/f", "twice": "up/rel/f", "dots": "./a/./b/f",
		"loop": "loop", "one": "two", "two": "one", "gone": "a/nothing", "beyond": "a/b/f/x", "a/back": "../rel",
	} {
		must(os.Symlink(to, filepath.Join(dir, name)))
	}
	for _, name := range []string{"a/b/f", "rel", "rel/f", "abs/b/f", "file", "twice", "dots", "up/up/abs/back/f", "loop", "one", "gone", "beyond", "nothing", "a/b/f/x", "nothing/x", "rel/nothing"} {
		path := filepath.Join(dir, name)
		want, werr := filepath.EvalSymlinks(path)
		got, gerr := Resolve(path, dir)
		if (werr == nil) != (gerr == nil) || (werr == nil && got != want) {
			t.Errorf("%s: %q, %v; the kernel: %q, %v", name, got, gerr, want, werr)
		}
	}
	if got, err := Resolve(filepath.Join(dir, "rel", "nothing"), dir); !os.IsNotExist(err) || got != filepath.Join(dir, "a", "b", "nothing") {
		t.Errorf("a file to be made: %q, %v", got, err)
	}
	if _, err := Resolve(filepath.Join(dir, "gone"), dir); err == nil || os.IsNotExist(err) {
		t.Errorf("a link to nothing: %v", err)
	}
}

// TestResolveSwapped: a file that is swapped, while its links are followed, for
// a link of its owner's does not lead to what that user does not own.
func TestResolveSwapped(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another user is needed")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	site, victim := filepath.Join(dir, "site"), filepath.Join(dir, "victim")
	file, link := filepath.Join(site, "f"), filepath.Join(site, "l")
	for _, path := range []string{site, victim} {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(file, nil, 0o644)
	os.WriteFile(filepath.Join(victim, "f"), nil, 0o644)
	os.Symlink(filepath.Join(victim, "f"), link)
	for _, path := range []string{site, file, link} {
		os.Lchown(path, 65534, 65534)
	}
	var end atomic.Bool
	done := make(chan bool)
	go func() {
		for !end.Load() {
			unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
		}
		done <- true
	}()
	n := 0
	for stop := time.Now().Add(500 * time.Millisecond); time.Now().Before(stop); n++ {
		if real, err := Resolve(file, site); err == nil && real != file {
			t.Errorf("try %d: it leads to %s", n, real)
			break
		}
	}
	end.Store(true)
	<-done
	t.Logf("%d tries", n)
}
