package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sgpatch/fixtures/python"
)

// torture is how long each race is run: a moment, or as many seconds as
// SGPATCH_TORTURE says.
func torture() time.Duration {
	if n, err := strconv.Atoi(os.Getenv("SGPATCH_TORTURE")); err == nil {
		return time.Duration(n) * time.Second
	}
	return 300 * time.Millisecond
}

// swap exchanges two names as fast as it can, and stops at the first one in its
// place when the function it returns is called.
func swap(t *testing.T, a, b string) (stop func()) {
	var end atomic.Bool
	done := make(chan int)
	go func() {
		n := 0
		for !end.Load() || n%2 == 1 {
			if unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE) == nil {
				n++
			} else if end.Load() {
				break
			}
			if n%64 == 0 {
				time.Sleep(time.Duration(n%7) * 50 * time.Microsecond) // the other side gets its turn
			}
		}
		done <- n
	}()
	return func() {
		end.Store(true)
		t.Logf("%d swaps", <-done)
	}
}

// usurp puts a link into the place of whatever is made at a name.
func usurp(t *testing.T, to, path string) (stop func()) {
	var end atomic.Bool
	done := make(chan int)
	go func() {
		n := 0
		for ; !end.Load(); n++ {
			os.Symlink(to, path)
			os.Remove(path)
			if n%64 == 0 {
				time.Sleep(50 * time.Microsecond)
			}
		}
		done <- n
	}()
	return func() {
		end.Store(true)
		t.Logf("%d times", <-done)
	}
}

// race is a name in their install that is swapped, while root works in it, for
// a link of theirs to something of root's.
type race struct {
	name string // from the site
	to   string // from the victim, which is another install with the set in it
	anew bool   // it is made by root, and what is swapped in stands ready
	each func(t *testing.T, w records)
}

// TestRaces: a component swapped between check and use leads root nowhere.
func TestRaces(t *testing.T) {
	needsRoot(t)
	journal := func(t *testing.T, w records) {
		w.keep(t, before)
		w.journal(t, "sglang/a.py", filepath.Join(w.victim, "sglang", "a.py"), digests.before, digests.after)
		theirs(t, w.folder)
	}
	for name, r := range map[string]race{
		"the file":               {name: "sglang/a.py", to: "sglang/a.py"},
		"its folder":             {name: "sglang", to: "sglang"},
		"the root":               {name: "", to: ""},
		"the records":            {name: ".sgpatch", to: ".sgpatch"},
		"the store":              {name: ".sgpatch/objects", to: "private"},
		"the store, made anew":   {name: ".sgpatch/objects", to: "private", anew: true},
		"the records, made anew": {name: ".sgpatch", to: "private", anew: true},
		"the lock, made anew":    {name: ".sgpatch/lock", to: "private/secret", anew: true},
		"the journal's text":     {name: ".sgpatch/journal.json.new", to: "private/secret", anew: true},
		"the lock":               {name: ".sgpatch/lock", to: "private/secret"},
		"the receipt":            {name: ".sgpatch/receipt.json", to: "private/secret"},
		"the bytecode":           {name: "sglang/__pycache__", to: "sglang/__pycache__"},
		"the file, by a journal": {name: "sglang/a.py", to: "sglang/a.py", each: journal},
		"its folder, by journal": {name: "sglang", to: "sglang", each: journal},
		"the entry":              {name: "sitecustomize.py", to: "private/secret"},
	} {
		t.Run(name, func(t *testing.T) { r.run(t) })
	}
}

func (r race) run(t *testing.T) {
	w := inPlace(t)
	w.victim = filepath.Join(w.dir, "root")
	bytecode := filepath.Join(w.site, "sglang", "__pycache__", "a.cpython-311.pyc")
	lay(t, bytecode, "compiled")
	if out, err := exec.Command("cp", "-a", w.site, w.victim).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	secret := filepath.Join(w.victim, "private", "secret")
	lay(t, secret, "root's\n")
	os.Chmod(secret, 0o600)
	os.Chmod(filepath.Dir(secret), 0o700)
	if r.each == nil {
		attacked(t, 0, w.dir, "revert", "--root", "root") // so that what is pristine in one is so in the other
	}
	theirs(t, w.site)
	was := census(t, w.victim)
	other := filepath.Join(w.dir, "swapped")
	theirLink(t, filepath.Join(w.victim, r.to), other)
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.OpenRoot(filepath.Dir(bytecode)) // whatever its name leads to by then
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	codes := map[int]int{}
	var stop func()
	if r.anew {
		stop = usurp(t, filepath.Join(w.victim, r.to), filepath.Join(w.site, r.name))
	} else {
		stop = swap(t, filepath.Join(w.site, r.name), other)
	}
	for end := time.Now().Add(torture()); time.Now().Before(end); {
		if r.each != nil {
			r.each(t, w)
		}
		for _, args := range [][]string{{"apply", "x", "--patches", "sets"}, {"revert"}, {"revert", "--all", "--purge"}} {
			cmd := exec.Command(program, append(args, "--root", "site")...)
			cmd.Dir, cmd.Env = w.dir, append(python.CleanEnv(), "SGPATCH_STATE_DIR="+filepath.Join(w.dir, "state"))
			out, _ := cmd.CombinedOutput()
			code := cmd.ProcessState.ExitCode()
			if codes[code]++; code != exitOK && code != exitRefused && code != exitFailed && code != exitBroken {
				t.Errorf("exit %d: %s", code, out)
			}
			cache.WriteFile(filepath.Base(bytecode), []byte("compiled"), 0o644)
		}
	}
	stop()
	t.Log(fmt.Sprint(codes))
	unchanged(t, was, w.victim)
}
