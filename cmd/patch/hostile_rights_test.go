package main

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSetUID: a copy with somebody's rights does nothing for others.
func TestSetUID(t *testing.T) {
	needsRoot(t)
	dir, site := ground(t)
	goodSet(t, dir)
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"uid": 0o755 | os.ModeSetuid, "gid": 0o755 | os.ModeSetgid} {
		copied := filepath.Join(dir, name)
		lay(t, copied, string(text))
		if err := os.Chmod(copied, mode); err != nil {
			t.Fatal(err)
		}
		was := census(t, site)
		for _, args := range [][]string{{"apply", "x", "--patches", "sets", "--root", site}, {"revert", "--root", site}, {"help"}, {"verify", "--root", site, "--", "/bin/sh", "-c", "id"}} {
			attackedBy(t, copied, they, dir, args...).refuses(t, exitRefused, "set-uid")
		}
		unchanged(t, was, site)
	}
}

// TestOwner: the owner of an install needs no root, no mode is widened, and
// the umask does not matter.
func TestOwner(t *testing.T) {
	needsRoot(t)
	for _, mask := range []string{"000", "022", "077", "777"} {
		t.Run(mask, func(t *testing.T) {
			t.Setenv("MEASURE_UMASK", mask)
			dir, site := ground(t)
			goodSet(t, dir)
			target := filepath.Join(site, "sglang", "a.py")
			theirs(t, site)
			os.Mkdir(filepath.Join(dir, "state"), 0o755)
			theirs(t, filepath.Join(dir, "state"))
			for _, mode := range []os.FileMode{0o400, 0o444, 0o600, 0o640, 0o664} {
				os.Chmod(target, mode)
				unix.Setxattr(target, "user.kept", []byte("x"), 0)
				acl := "\x02\x00\x00\x00" + "\x01\x00\x06\x00\xff\xff\xff\xff" + "\x02\x00\x04\x00\x07\x00\x00\x00" + "\x04\x00\x00\x00\xff\xff\xff\xff" + "\x10\x00\x04\x00\xff\xff\xff\xff" + "\x20\x00\x00\x00\xff\xff\xff\xff"
				hasACL := mode == 0o640 && unix.Setxattr(target, "system.posix_acl_access", []byte(acl), 0) == nil
				before := mustStat(t, target).Mode()
				for _, args := range [][]string{{"apply", "x", "--patches", "sets"}, {"verify"}, {"revert"}} {
					if r := attacked(t, they, dir, append(args, "--root", site)...); r.code != exitOK {
						t.Fatalf("%v: exit %d: %s%s", args, r.code, r.stdout, r.stderr)
					}
					if got := mustStat(t, target).Mode(); got != before {
						t.Errorf("%s: mode %v becomes %v", args[0], before, got)
					}
					got := make([]byte, 100)
					if n, err := unix.Getxattr(target, "system.posix_acl_access", got); hasACL && (err != nil || string(got[:n]) != acl) {
						t.Errorf("%s: the access list is %q, %v", args[0], got[:max(n, 0)], err)
					}
				}
				private(t, filepath.Join(site, ".sgpatch"), mode)
				os.RemoveAll(filepath.Join(site, ".sgpatch", "objects"))
				unix.Removexattr(target, "system.posix_acl_access")
			}
		})
	}
}

func mustStat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// private demands that no record can be written by others, and that originals
// have no more readers than their file.
func private(t *testing.T, folder string, mode os.FileMode) {
	t.Helper()
	filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			t.Error(err)
			return nil
		}
		st := mustStat(t, path)
		if st.Mode()&0o022 != 0 {
			t.Errorf("%s: %v", path, st.Mode())
		}
		if filepath.Base(filepath.Dir(path)) == "objects" && st.Mode().Perm()&^mode != 0 {
			t.Errorf("%s: %v, and the file had %v", path, st.Mode(), mode)
		}
		return nil
	})
}
