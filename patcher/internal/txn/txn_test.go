package txn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// world is a root with two files and the commit that changes both and makes a third.
type world struct {
	root   string
	writes []Write
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{root: root}
	for _, name := range []string{"a.py", "b.py"} {
		write(t, w.path(name), "old "+name)
		w.writes = append(w.writes, w.change(name, "old "+name, "new "+name))
	}
	c := w.change("c.py", "", "new c.py")
	c.Old, c.Perm = "", 0o640
	w.writes = append(w.writes, c)
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.root, name) }

func (w *world) change(name, old, new string) Write {
	return Write{Rel: name, Path: w.path(name), Old: Digest([]byte(old)), New: Digest([]byte(new)), Data: []byte(new)}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// state says which contents the three files have: "old", "new" or a mixture.
func (w *world) state(t *testing.T) string {
	t.Helper()
	var all []string
	for _, name := range []string{"a.py", "b.py", "c.py"} {
		text, err := os.ReadFile(w.path(name))
		if errors.Is(err, fs.ErrNotExist) && name == "c.py" {
			text = []byte("old")
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.Fields(string(text))[0])
	}
	return strings.Join(all, " ")
}

// litter lists what lies in the root beside the files and the records.
func (w *world) litter(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(w.root)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		switch e.Name() {
		case "a.py", "b.py", "c.py", Folder:
		default:
			all = append(all, e.Name())
		}
	}
	return all
}

func lock(t *testing.T, root string) *Dir {
	t.Helper()
	d, err := Lock(context.Background(), root, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func anything(rel, path, old string) error { return nil }

func TestCommit(t *testing.T) {
	w := newWorld(t)
	if err := os.Chmod(w.path("a.py"), 0o604); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(w.path("b.py"), w.path("link")); err != nil {
		t.Fatal(err)
	}
	attr := unix.Setxattr(w.path("a.py"), "user.test", []byte("kept"), 0)
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	if err := lock(t, w.root).Commit("apply", w.writes, nil, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if got := w.state(t); got != "new new new" {
		t.Fatal(got)
	}
	for name, mode := range map[string]fs.FileMode{"a.py": 0o604, "b.py": 0o644, "c.py": 0o640} {
		if st, _ := os.Stat(w.path(name)); st.Mode().Perm() != mode {
			t.Errorf("%s: mode %v", name, st.Mode())
		}
	}
	if text, _ := os.ReadFile(w.path("link")); string(text) != "old b.py" {
		t.Error("written through a hard link")
	}
	if attr == nil {
		value := make([]byte, 10)
		if n, err := unix.Getxattr(w.path("a.py"), "user.test", value); err != nil || string(value[:n]) != "kept" {
			t.Error("the attribute is lost")
		}
	}
	os.Remove(w.path("link"))
	if l := w.litter(t); l != nil {
		t.Errorf("left over: %v", l)
	}
	if _, journal, _ := Read(w.root); journal != nil {
		t.Error("the journal stays")
	}
	if data, err := Object(w.root, w.writes[0].Old); err != nil || string(data) != "old a.py" {
		t.Errorf("the original: %q, %v", data, err)
	}
}

// TestCrash stops a commit after every step and lets the next command find it.
func TestCrash(t *testing.T) {
	steps := []struct {
		name string
		upto int // files staged
		done int // files renamed
		end  bool
		want string
	}{
		{"journal only", 0, 0, false, "old old old"},
		{"one staged", 1, 0, false, "old old old"},
		{"all staged", 3, 0, false, "old old old"},
		{"one renamed", 3, 1, false, "old old old"},
		{"two renamed", 3, 2, false, "old old old"},
		{"all renamed", 3, 3, false, "old old old"},
		{"receipt written", 3, 3, true, "new new new"},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld(t)
			d := lock(t, w.root)
			c := begun(t, d, w)
			for _, x := range w.writes[:s.upto] {
				dir, base := split(x.Path)
				if err := stage(c.dirs[dir], base, c.journal.staged(base), x, &c.sync); err != nil {
					t.Fatal(err)
				}
			}
			for _, x := range w.writes[:s.done] {
				if err := c.replace(x); err != nil {
					t.Fatal(err)
				}
			}
			if s.end {
				if err := putAt(d.fd, receiptName, c.receipt, &c.sync); err != nil {
					t.Fatal(err)
				}
			}
			if _, journal, _ := Read(w.root); journal == nil {
				t.Fatal("no journal to find")
			}
			r, err := d.Recover(anything)
			if err != nil || r.Command != "apply" || r.Finished != s.end || len(r.Restored) != s.done*b2i(!s.end) {
				t.Fatalf("%+v, %v", r, err)
			}
			if got := w.state(t); got != s.want {
				t.Error(got)
			}
			if l := w.litter(t); l != nil {
				t.Errorf("left over: %v", l)
			}
			if r, err := d.Recover(anything); err != nil || r.Command != "" {
				t.Errorf("a second recovery: %+v, %v", r, err)
			}
		})
	}
}

// begun is a commit whose originals and journal are on disk.
func begun(t *testing.T, d *Dir, w *world) *commit {
	t.Helper()
	c := newCommit(d, "apply", w.writes, nil, []byte("{}"))
	t.Cleanup(c.close)
	if err := c.look(); err != nil {
		t.Fatal(err)
	}
	if err := d.keepAll(c.keep, &c.sync); err != nil {
		t.Fatal(err)
	}
	if err := d.putJournal(c.journal, &c.sync); err != nil {
		t.Fatal(err)
	}
	return c
}

// store keeps one content, on disk.
func store(t *testing.T, d *Dir, data string) {
	t.Helper()
	var s syncs
	if err := errors.Join(d.keepAll([]content{{data: []byte(data), mode: 0o644}}, &s), s.wait()); err != nil {
		t.Fatal(err)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestRecoveryLeavesWhatOthersWrote(t *testing.T) {
	w := newWorld(t)
	d := lock(t, w.root)
	begun(t, d, w)
	write(t, w.path("a.py"), "installed meanwhile")
	os.Remove(w.path("b.py"))
	r, err := d.Recover(anything)
	if err != nil || len(r.Left) != 2 || len(r.Restored) != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if text, _ := os.ReadFile(w.path("a.py")); string(text) != "installed meanwhile" {
		t.Error("overwritten")
	}
}

func TestAbortPutsEverythingBack(t *testing.T) {
	w := newWorld(t)
	before, _ := os.Stat(w.path("a.py"))
	w.writes[1].Stale = []string{w.path("stale.pyc")}
	if err := os.MkdirAll(w.path("stale.pyc/full"), 0o755); err != nil { // cannot be unlinked
		t.Fatal(err)
	}
	err := lock(t, w.root).Commit("apply", w.writes, nil, []byte("{}"))
	var ce *CommitError
	if !errors.As(err, &ce) || !ce.Touched || !ce.Undone {
		t.Fatalf("%v", err)
	}
	if got := w.state(t); got != "old old old" {
		t.Error(got)
	}
	if after, _ := os.Stat(w.path("a.py")); !after.ModTime().Equal(before.ModTime()) {
		t.Error("the time is not as before")
	}
	os.RemoveAll(w.path("stale.pyc"))
	if l := w.litter(t); l != nil {
		t.Errorf("left over: %v", l)
	}
	if receipt, journal, _ := Read(w.root); receipt != nil || journal != nil {
		t.Error("records of a commit that did not happen")
	}
}

func TestChangedMeanwhile(t *testing.T) {
	w := newWorld(t)
	write(t, w.path("b.py"), "edited")
	err := lock(t, w.root).Commit("apply", w.writes, nil, []byte("{}"))
	var moved *ChangedError
	if !errors.As(err, &moved) || moved.Path != w.path("b.py") {
		t.Fatal(err)
	}
	if got := w.state(t); got != "old edited old" {
		t.Error(got)
	}
}

func TestSameSecondSameSize(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	if err := os.Chtimes(w.path("a.py"), now, now); err != nil {
		t.Fatal(err)
	}
	if err := lock(t, w.root).Commit("apply", w.writes[:1], nil, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if st, _ := os.Stat(w.path("a.py")); st.ModTime().Unix() == now.Unix() {
		t.Error("Python would take the old bytecode for this content's")
	}
}

func TestJournalMayNotNameStrangers(t *testing.T) {
	w := newWorld(t)
	d := lock(t, w.root)
	stranger := filepath.Join(t.TempDir(), "passwd")
	write(t, stranger, "new")
	store(t, d, "evil")
	j := &journal{Schema: 1, ID: newID(), Command: "apply", Receipt: Digest(nil), Writes: []entry{{Rel: "a.py", Path: stranger, Old: Digest([]byte("evil")), New: Digest([]byte("new"))}}}
	if err := d.putJournal(j, &syncs{}); err != nil {
		t.Fatal(err)
	}
	_, err := d.Recover(func(rel, path, old string) error {
		if path != w.path(rel) {
			return errors.New("not of this install")
		}
		return nil
	})
	if err == nil {
		t.Fatal("accepted")
	}
	if text, _ := os.ReadFile(stranger); string(text) != "new" {
		t.Error("followed")
	}
	if _, journal, _ := Read(w.root); journal == nil {
		t.Error("the journal is gone")
	}
}

func TestLock(t *testing.T) {
	root := t.TempDir()
	first := lock(t, root)
	_, err := Lock(context.Background(), root, 20*time.Millisecond)
	var busy *BusyError
	if !errors.As(err, &busy) {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		d, err := Lock(context.Background(), root, 5*time.Second)
		if err == nil {
			err = d.Commit("apply", nil, nil, []byte("{}")) // after a purge it must have records of its own
			d.Close()
		}
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	if err := first.Purge(); err != nil {
		t.Fatal(err)
	}
	first.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if receipt, _, err := Read(root); err != nil || string(receipt) != "{}" {
		t.Errorf("%q, %v", receipt, err)
	}
}

func TestRecordsBehindALink(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(other, filepath.Join(root, Folder)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(root); err == nil {
		t.Error("read")
	}
	if _, err := Lock(context.Background(), root, 0); err == nil {
		t.Error("locked")
	}
	if entries, _ := os.ReadDir(other); len(entries) != 0 {
		t.Error("written to")
	}
}

func TestLookingCreatesNothing(t *testing.T) {
	root := t.TempDir()
	if r, j, err := Read(root); r != nil || j != nil || err != nil {
		t.Fatal(r, j, err)
	}
	if _, err := Object(root, Digest(nil)); err == nil {
		t.Error("an object out of nothing")
	}
	if entries, _ := os.ReadDir(root); len(entries) != 0 {
		t.Error("something was created")
	}
}

func TestObjectIsChecked(t *testing.T) {
	root := t.TempDir()
	d := lock(t, root)
	store(t, d, "right")
	name := Digest([]byte("right"))
	write(t, filepath.Join(root, Folder, objectsName, name), "wrong")
	if _, err := Object(root, name); err == nil {
		t.Error("a content that does not match its digest was given out")
	}
	store(t, d, "right")
	if data, err := Object(root, name); err != nil || string(data) != "right" {
		t.Errorf("storing it again does not mend it: %q, %v", data, err)
	}
}

func TestAppendClosesATornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "history.jsonl")
	if err := Append(path, []byte("one")); err != nil {
		t.Fatal(err)
	}
	f, _ := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	fmt.Fprint(f, "torn")
	f.Close()
	if err := Append(path, []byte("two")); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(path); string(text) != "one\ntorn\ntwo\n" {
		t.Errorf("%q", text)
	}
	if st, _ := os.Stat(path); st.Mode().Perm() != 0o600 {
		t.Error(st.Mode())
	}
}

// FuzzJournal: one that is accepted has absolute paths and whole digests.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"schema":1,"id":"0123456789ab","receipt":"` + Digest(nil) + `","writes":[{"path":"/a","old":"` + Digest(nil) + `"}]}`))
	f.Add([]byte(`{"schema":1,"id":"../../../../x"}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		j, err := parseJournal(text)
		if err != nil {
			return
		}
		for _, e := range j.Writes {
			if !filepath.IsAbs(e.Path) || strings.ContainsRune(j.staged("x"), '/') || (e.Old != "" && !isDigest(e.Old)) {
				t.Errorf("accepted %+v", e)
			}
		}
	})
}

// TestManyFiles: more files than wait for the disk at once.
func TestManyFiles(t *testing.T) {
	w := newWorld(t)
	w.writes = nil
	for i := range 3 * manySyncs {
		name := fmt.Sprintf("f%03d.py", i)
		write(t, w.path(name), "old "+name)
		w.writes = append(w.writes, w.change(name, "old "+name, "new "+name))
	}
	if err := lock(t, w.root).Commit("apply", w.writes, nil, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	for _, c := range w.writes {
		if text, err := os.ReadFile(c.Path); err != nil || Digest(text) != c.New {
			t.Fatalf("%s: %q, %v", c.Path, text, err)
		}
		if _, err := Object(w.root, c.Old); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReceiptStaysNew: a receipt that cannot be put back says that all is in
// place. Then it has to be, and the next command tidies up.
func TestReceiptStaysNew(t *testing.T) {
	w := newWorld(t)
	d := lock(t, w.root)
	if err := d.Commit("first", nil, nil, []byte("before")); err != nil {
		t.Fatal(err)
	}
	c := renamed(t, d, w)
	if err := putAt(d.fd, receiptName, c.receipt, &c.sync); err != nil {
		t.Fatal(err)
	}
	c.ending = true
	blocked := filepath.Join(w.root, Folder, receiptName+suffix, "full")
	if err := os.MkdirAll(blocked, 0o755); err != nil {
		t.Fatal(err)
	}
	var ce *CommitError
	if err := c.abort(errors.New("sync")); !errors.As(err, &ce) || !ce.Touched || ce.Undone || !ce.Journal {
		t.Errorf("%v", err)
	}
	if r, err := d.Recover(anything); err != nil || !r.Finished {
		t.Errorf("%+v, %v", r, err)
	}
	if got := w.state(t); got != "new new new" {
		t.Error(got)
	}
}

// renamed is a commit that lacks nothing but its end.
func renamed(t *testing.T, d *Dir, w *world) *commit {
	t.Helper()
	c := begun(t, d, w)
	c.began = true
	for _, x := range w.writes {
		dir, base := split(x.Path)
		if err := errors.Join(stage(c.dirs[dir], base, c.journal.staged(base), x, &c.sync), c.replace(x)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestSameReceipt: two commands within a second may give the same receipt, which
// then does not say that the second is complete.
func TestSameReceipt(t *testing.T) {
	for n, want := range []string{"old old old", "old old old", "old old old", "new new new"} {
		w := newWorld(t)
		d := lock(t, w.root)
		if err := d.Commit("first", nil, nil, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		c := begun(t, d, w)
		for _, x := range w.writes[:n] {
			dir, base := split(x.Path)
			if err := errors.Join(stage(c.dirs[dir], base, c.journal.staged(base), x, &c.sync), c.replace(x)); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := d.Recover(anything); err != nil || r.Finished != (n == 3) {
			t.Errorf("%d renamed: %+v, %v", n, r, err)
		}
		if got := w.state(t); got != want {
			t.Errorf("%d renamed: %s", n, got)
		}
	}
}

// TestOnlyTheReceipt: where nothing else is written, a failed end still leaves
// the old receipt.
func TestOnlyTheReceipt(t *testing.T) {
	root := t.TempDir()
	d := lock(t, root)
	if err := d.Commit("first", nil, nil, []byte("before")); err != nil {
		t.Fatal(err)
	}
	c := newCommit(d, "second", nil, nil, []byte("after"))
	if err := errors.Join(c.look(), c.prepare(), c.finish()); err != nil {
		t.Fatal(err)
	}
	c.abort(errors.New("sync"))
	if got, _ := d.Receipt(); string(got) != "before" {
		t.Errorf("%q", got)
	}
}
