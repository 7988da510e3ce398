package patcher

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"sgpatch/patcher/block"
	"sgpatch/patcher/install"
	"sgpatch/patcher/internal/txn"
	"sgpatch/patcher/patchset"
)

// entrySet has no code: its commit is one file.
var entrySet = patchset.Set{ID: "one", Version: "1", Env: []patchset.EnvEntry{{Name: "SGLANG_ONE", Value: "1", Switch: true}}}

var applyOne = Goal{Command: "apply", Apply: []string{"one"}, Named: true}

// siteAt is an install whose sitecustomize may be another's, too.
func siteAt(t *testing.T, root, entry string) *Site {
	t.Helper()
	in := install.Install{Root: root, Site: entry, Told: true}
	s, err := Open(in, []patchset.Set{entrySet})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func folder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func rootsIn(t *testing.T, entry string) []string {
	t.Helper()
	text, err := os.ReadFile(entry)
	if err != nil {
		t.Fatal(err)
	}
	b, err := block.Get(text)
	if err != nil {
		t.Fatal(err)
	}
	return b.Roots()
}

// TestNeighbourAtWork: a plan that was made while another root was between its
// sitecustomize and its receipt takes that root for one that is not there. It is
// not what the commit may be made from.
func TestNeighbourAtWork(t *testing.T) {
	first, second, entry := folder(t), folder(t), filepath.Join(folder(t), "sitecustomize.py")
	if _, err := Converge(context.Background(), siteAt(t, first, entry), applyOne, Options{Wait: time.Second}); err != nil {
		t.Fatal(err)
	}
	receipt := filepath.Join(first, txn.Folder, "receipt.json")
	if err := os.Rename(receipt, receipt+".new"); err != nil {
		t.Fatal(err)
	}
	held, err := txn.Lock(context.Background(), second, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, done := siteAt(t, second, entry), make(chan error)
	go func() {
		_, err := Converge(context.Background(), s, applyOne, Options{Wait: 10 * time.Second})
		done <- err
	}()
	time.Sleep(100 * time.Millisecond) // its plan is made
	if err := os.Rename(receipt+".new", receipt); err != nil {
		t.Fatal(err)
	}
	held.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := rootsIn(t, entry); !slices.Contains(got, first) || !slices.Contains(got, second) {
		t.Errorf("the entry is of %q", got)
	}
}

// TestOneTrial: of two that looked at the same time only one begins.
func TestOneTrial(t *testing.T) {
	root := folder(t)
	if err := os.MkdirAll(filepath.Join(root, "sglang"), 0o755); err != nil {
		t.Fatal(err)
	}
	entry := filepath.Join(root, "sitecustomize.py")
	first, second := siteAt(t, root, entry), siteAt(t, root, entry)
	goal := func(trial string) Goal {
		g := applyOne
		g.Trial = trial
		return g
	}
	if _, err := Converge(context.Background(), first, goal("of one, first"), Options{Wait: time.Second}); err != nil {
		t.Fatal(err)
	}
	_, err := Converge(context.Background(), second, goal("of one, second"), Options{Wait: time.Second})
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Code != "trial" {
		t.Errorf("the second: %v", err)
	}
	if got := siteAt(t, root, entry).Receipt.Trial; got != "of one, first" {
		t.Errorf("the receipt says %q", got)
	}
}

// TestBothEntriesAreLocked: a root that moves to another sitecustomize writes
// the one it leaves as well.
func TestBothEntriesAreLocked(t *testing.T) {
	root := folder(t)
	old, entry := filepath.Join(root, "sitecustomize.py"), filepath.Join(folder(t), "sitecustomize.py")
	if _, err := Converge(context.Background(), siteAt(t, root, old), applyOne, Options{Wait: time.Second}); err != nil {
		t.Fatal(err)
	}
	unlock, err := txn.LockBeside(context.Background(), old, 0)
	if err != nil {
		t.Fatal(err)
	}
	var busy *BusyError
	if _, err := Converge(context.Background(), siteAt(t, root, entry), applyOne, Options{}); !errors.As(err, &busy) {
		t.Fatalf("%v", err)
	}
	unlock()
	if _, err := Converge(context.Background(), siteAt(t, root, entry), applyOne, Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(old); err == nil {
		t.Error("the old one is left")
	}
}

// TestNoSecondCommitOverAJournal: what could not be put back is not tried again.
func TestNoSecondCommitOverAJournal(t *testing.T) {
	moved := &ChangedError{Path: "/a.py"}
	for err, want := range map[error]bool{
		moved:                                  true,
		&CommitError{Undone: true, Err: moved}: true,
		&CommitError{Undone: true, Journal: true, Err: moved}:                                       false,
		&CommitError{Touched: true, Journal: true, Err: errors.Join(errors.New("and then"), moved)}: false,
		errors.New("other"): false,
	} {
		if movedOnly(err) != want {
			t.Errorf("%v", err)
		}
	}
}

// TestPipeInARecord: a receipt may name anything as the old sitecustomize. A
// stranger's file is not even opened, and a pipe is not waited for.
func TestPipeInARecord(t *testing.T) {
	root, pipe := folder(t), filepath.Join(folder(t), "sitecustomize.py")
	entry := filepath.Join(root, "sitecustomize.py")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := txn.Lock(context.Background(), root, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := Receipt{Schema: 1, Root: root, Entry: EntryPlace{Path: pipe, Real: pipe}}
	if err := errors.Join(d.Commit("apply", nil, nil, r.text()), d.Close()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	go func() {
		_, err := Converge(context.Background(), siteAt(t, root, entry), applyOne, Options{})
		done <- err
	}()
	go func() {
		Names(pipe, root)
		Orphan(install.Answer{Site: pipe})
		Lacks(pipe, []string{"a"})
		done <- nil
	}()
	for range 2 {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("it waits for the pipe")
		}
	}
}

// TestBusyIsSaid: a commit that takes longer than a reader waits is no failure.
func TestBusyIsSaid(t *testing.T) {
	root := folder(t)
	d, err := txn.Lock(context.Background(), root, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := os.WriteFile(filepath.Join(root, txn.Folder, "journal.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	var busy *BusyError
	if _, err := Open(install.Install{Root: root, Told: true}, nil); !errors.As(err, &busy) {
		t.Errorf("%v", err)
	}
}
