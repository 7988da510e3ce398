package install

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestPipes: nothing that is looked at in an install is waited for.
func TestPipes(t *testing.T) {
	dir := t.TempDir()
	err := os.MkdirAll(filepath.Join(dir, "sglang"), 0o755)
	for _, name := range []string{"CACHEDIR.TAG", "sglang/version.py", "sglang/_version.py", "a.pth", "a.pyc"} {
		err = errors.Join(err, syscall.Mkfifo(filepath.Join(dir, name), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan bool)
	go func() {
		cacheOf(filepath.Join(dir, "a.py"))
		Release(dir)
		pthRoots(dir)
		HowUsed(filepath.Join(dir, "a.pyc"), dir, nil)
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("it waits for a pipe")
	}
}

// TestUnsuited: whatever an interpreter says, only a sitecustomize gets an entry.
func TestUnsuited(t *testing.T) {
	dir := t.TempDir()
	for name, good := range map[string]bool{"sitecustomize.py": true, "sitecustomize/__init__.py": true, "tool.py": false, "tool/__init__.py": false} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		if err := unsuited(Answer{Site: path, SiteLoaded: true, SiteIsFile: true}); (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
