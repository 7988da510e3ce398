package txn

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
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
		d.keepAll([][]byte{[]byte("x")}, &s)
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
