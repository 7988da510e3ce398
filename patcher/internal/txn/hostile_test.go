package txn

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStoreSwapped: whoever owns the records puts a link in the place of the
// store that root has just made; its mode is not given to what the link leads to.
func TestStoreSwapped(t *testing.T) {
	w := newWorld(t)
	d := lock(t, w.root)
	victim, store := filepath.Join(t.TempDir(), "victim"), filepath.Join(w.root, Folder, objectsName)
	if err := os.Mkdir(victim, 0o700); err != nil {
		t.Fatal(err)
	}
	var end atomic.Bool
	done := make(chan bool)
	go func() {
		for !end.Load() {
			os.Remove(store)
			os.Symlink(victim, store)
			os.Remove(store)
		}
		done <- true
	}()
	for stop := time.Now().Add(300 * time.Millisecond); time.Now().Before(stop); {
		var s syncs
		d.keepAll([]content{{data: []byte("x"), mode: 0o644}}, &s)
		s.close()
		os.RemoveAll(store)
	}
	end.Store(true)
	<-done
	if st, err := os.Stat(victim); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if left, _ := os.ReadDir(victim); len(left) > 0 {
		t.Errorf("in the victim: %v", left)
	}
}

// TestLinkOnTheWay: a directory that became a link since its file was looked at
// ends every step that would go through it.
func TestLinkOnTheWay(t *testing.T) {
	w := newWorld(t)
	victim := t.TempDir()
	for _, name := range []string{"a.py", "a.pyc"} {
		write(t, filepath.Join(victim, name), "old")
	}
	if err := os.Symlink(victim, w.path("d")); err != nil {
		t.Fatal(err)
	}
	d := lock(t, w.root)
	change := Write{Rel: "d/a.py", Path: w.path("d/a.py"), Old: Digest([]byte("old")), New: Digest([]byte("new")), Data: []byte("new")}
	clear := w.change("a.py", "old a.py", "old a.py")
	clear.Stale = []string{w.path("d/a.pyc")}
	journal := &journal{Schema: 1, ID: newID(), Command: "apply", Receipt: Digest(nil), Writes: []entry{{Rel: "d/a.py", Path: change.Path, New: change.Old}}}
	_, beside := LockBeside(context.Background(), change.Path, 0)
	_, root := Lock(context.Background(), w.path("d"), 0)
	_, back := d.rollback(journal, []string{change.Path})
	for name, err := range map[string]error{
		"commit": d.Commit("apply", []Write{change}, nil, []byte("{}")), "bytecode": d.Commit("apply", []Write{clear}, nil, []byte("{}")),
		"replace": Replace(change), "lock beside": beside, "lock": root, "roll back": back,
	} {
		if !errors.Is(err, unix.ELOOP) {
			t.Errorf("%s: %v", name, err)
		}
	}
	left, _ := filepath.Glob(filepath.Join(victim, "*"))
	if text, err := os.ReadFile(filepath.Join(victim, "a.py")); len(left) != 2 || string(text) != "old" {
		t.Errorf("in the victim: %v, %q, %v", left, text, err)
	}
}
