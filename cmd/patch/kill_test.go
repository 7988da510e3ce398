package main

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"sgpatch/fixtures/python"
	"sgpatch/fixtures/tree"
	"sgpatch/patcher"
)

// TestKill ends apply and revert with SIGKILL at random moments. Whatever was
// reached, the next command finds all of it or none of it, or puts it right.
func TestKill(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "site")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := tree.Write(root); err != nil {
		t.Fatal(err)
	}
	run := func(after time.Duration, args ...string) error {
		cmd := exec.Command(os.Args[0], append(args, "--root", root)...)
		cmd.Env = append(python.CleanEnv(), "SGPATCH_TEST_RUN=1", "SGPATCH_STATE_DIR="+dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if after > 0 {
			time.Sleep(after)
			cmd.Process.Signal(syscall.SIGKILL)
		}
		return cmd.Wait()
	}
	set := []string{"nccl-pcie"} // environment alone: the commit is all there is to be hit
	whole := time.Now()
	if err := run(0, append([]string{"apply"}, set...)...); err != nil {
		t.Fatal(err)
	}
	took := time.Since(whole)
	killed := 0
	for i := range 60 {
		command := []string{"revert", "apply"}[i%2]
		if run(time.Duration(rand.Int64N(int64(took)*5/4)+1), append([]string{command}, set...)...) != nil {
			killed++
		}
		if err := run(0, append([]string{command}, set...)...); err != nil {
			t.Fatalf("after a killed %s the next one failed: %v", command, err)
		}
		_, err := os.Stat(filepath.Join(root, "sitecustomize.py"))
		if (err == nil) != (command == "apply") {
			t.Fatalf("after a killed %s and the next one: sitecustomize.py: %v", command, err)
		}
		if litter, _ := filepath.Glob(filepath.Join(root, ".*.sgpatch")); litter != nil {
			t.Fatalf("left over: %v", litter)
		}
	}
	if killed == 0 {
		t.Error("no command was hit")
	}
}

// TestInterrupt: before the commit, Ctrl-C ends the command with 130 and
// nothing changed, also while the interpreter is waited for.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	slow := filepath.Join(dir, "python")
	if err := os.WriteFile(slow, []byte("#!/bin/sh\n: >"+dir+"/started\nsleep 20\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "apply", "--python", slow)
	cmd.Env = append(python.CleanEnv(), "SGPATCH_TEST_RUN=1", "SGPATCH_STATE_DIR="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != exitInterrupted {
		t.Errorf("exit %d", got)
	}
}

// TestInterruptedCommit: who interrupts a command that fails in its commit is
// told how that ended, and not that nothing was changed.
func TestInterruptedCommit(t *testing.T) {
	for err, want := range map[error]bool{
		&patcher.CommitError{Touched: true, Journal: true, Err: syscall.EIO}: true,
		&patcher.RecoverError{Root: "/r", Err: syscall.EIO}:                  true,
		&purgeError{"/r", syscall.EIO}:                                       true,
		&patcher.BusyError{}:                                                 false,
		context.Canceled:                                                     false,
	} {
		if committing(err) != want {
			t.Errorf("%T: %v", err, !want)
		}
	}
}
