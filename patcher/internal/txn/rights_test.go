package txn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPurgeAgainstCommits: who holds the lock keeps what it writes, whenever
// somebody else takes the records away.
func TestPurgeAgainstCommits(t *testing.T) {
	root := t.TempDir()
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			case <-time.After(5 * time.Millisecond):
			}
			d, err := Lock(context.Background(), root, 10*time.Second)
			if err == nil {
				for i := range 200 { // something to do
					os.WriteFile(filepath.Join(root, Folder, fmt.Sprint(i)), nil, 0o644)
				}
				err = errors.Join(d.Purge(), d.Close())
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	for n := range 100 {
		d, err := Lock(context.Background(), root, 10*time.Second)
		if err != nil {
			t.Fatal(n, err)
		}
		err = d.Commit("apply", nil, [][]byte{[]byte("kept")}, []byte("{}"))
		receipt, _, rerr := Read(root)
		if err != nil || rerr != nil || string(receipt) != "{}" {
			t.Errorf("%d: %v, %q, %v", n, err, receipt, rerr)
			break
		}
		d.Close()
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestLockOfAnother: whoever owns the folder could make the lock a second name
// of a file that is not theirs.
func TestLockOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	dir := t.TempDir()
	secret, root := filepath.Join(dir, "secret"), filepath.Join(dir, "root")
	if err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600), os.MkdirAll(filepath.Join(root, Folder), 0o755), os.Chown(filepath.Join(root, Folder), 65534, 65534), os.Link(secret, filepath.Join(root, Folder, lockName))); err != nil {
		t.Fatal(err)
	}
	lock(t, root)
	var st unix.Stat_t
	if err := unix.Stat(secret, &st); err != nil || st.Uid != 0 || st.Mode&0o777 != 0o600 {
		t.Errorf("%v: it belongs to %d, mode %o", err, st.Uid, st.Mode)
	}
}

// TestLockIsForAll: readers see a command at work, whatever its umask.
func TestLockIsForAll(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	root := t.TempDir()
	lock(t, root)
	if st, err := os.Stat(filepath.Join(root, Folder, lockName)); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

// TestPrivateOriginals: what only its owner could read, nobody else can read in
// the records; and nothing there is for more people than any file of the commit.
func TestPrivateOriginals(t *testing.T) {
	w := newWorld(t)
	if err := os.Chmod(w.path("b.py"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := lock(t, w.root).Commit("apply", w.writes, nil, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	for _, c := range w.writes[:2] {
		want := map[string]fs.FileMode{"a.py": 0o640, "b.py": 0o600}[c.Rel]
		if st, err := os.Stat(filepath.Join(w.root, Folder, objectsName, c.Old)); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", c.Rel, st.Mode(), err)
		}
	}
}

// TestReadOnlyWithAttribute: an attribute can be set while the staged file is
// still writable, and not after it has the mode of the old one.
func TestReadOnlyWithAttribute(t *testing.T) {
	w := newWorld(t)
	if err := unix.Setxattr(w.path("a.py"), "user.test", []byte("kept"), 0); err != nil {
		t.Skip(err)
	}
	if err := os.Chmod(w.path("a.py"), 0o444); err != nil {
		t.Fatal(err)
	}
	dir, err := openDir(w.root)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	staged := make(chan error)
	go func() {
		if os.Geteuid() == 0 { // whom modes do not stop; the thread ends with the goroutine
			runtime.LockOSThread()
			unix.Fchown(dir, 65534, -1)
			os.Chown(w.path("a.py"), 65534, -1)
			unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534)
		}
		var s syncs
		staged <- errors.Join(stage(dir, "a.py", ".a.py.new", w.writes[0], &s), s.wait())
	}()
	if err := <-staged; err != nil {
		t.Error(err)
	}
}

// TestStaleIsSynced: bytecode that nobody checks must not come back after a
// power cut, so its directory waits for the disk with the others.
func TestStaleIsSynced(t *testing.T) {
	w := newWorld(t)
	c := renamed(t, lock(t, w.root), &world{root: w.root})
	write(t, w.path("a.pyc"), "stale")
	before := len(c.sync.fds)
	if err := clearStale(w.path("a.py"), []string{w.path("a.pyc"), w.path("none.pyc")}, &c.sync); err != nil {
		t.Fatal(err)
	}
	if got := len(c.sync.fds) - before; got != 1 {
		t.Errorf("%d directories", got)
	}
}

// TestReplaceSaysWhatItDid: bytecode that stays stops a single file's change
// before the file, and the error is true when it says that nothing was changed.
func TestReplaceSaysWhatItDid(t *testing.T) {
	w := newWorld(t)
	w.writes[0].Stale = []string{w.path("stale.pyc")}
	if err := os.MkdirAll(w.path("stale.pyc/full"), 0o755); err != nil { // cannot be unlinked
		t.Fatal(err)
	}
	err := Replace(w.writes[0])
	if err == nil || !strings.Contains(err.Error(), "nothing was changed") {
		t.Fatal(err)
	}
	if got := w.state(t); got != "old old old" {
		t.Errorf("%s: %v", got, err)
	}
	os.RemoveAll(w.path("stale.pyc"))
	if err := errors.Join(Replace(w.writes[0]), Replace(w.writes[2])); err != nil || w.state(t) != "new old new" {
		t.Errorf("%v: %s", err, w.state(t))
	}
}
