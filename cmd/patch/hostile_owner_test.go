package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sgpatch/patcher/patchset"
)

// they is another user, to whom an install belongs while root works in it.
const they = 65534

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("another user is needed")
	}
}

// theirs gives a tree to them.
func theirs(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, they, they)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func theirLink(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(path, they, they); err != nil {
		t.Fatal(err)
	}
}

// TestTheirInstall: whatever another user has made of an install, root's
// commands in it leave alone what this user could not change.
func TestTheirInstall(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	entry := filepath.Join("victim", "sitecustomize.py")
	apply, revert := []string{"apply", "x", "--patches", "sets", "--root", "site"}, []string{"revert", "--root", "site"}
	told := func(args []string) []string { return append(args[:len(args):len(args)], "--sitecustomize", entry) }
	for name, a := range map[string]struct {
		before bool // the attack comes before apply
		make   func(t *testing.T, w records)
		args   []string
		code   int
		names  string
	}{
		"the lock is a hard link": {true, func(t *testing.T, w records) {
			os.Mkdir(w.folder, 0o755)
			os.Chown(w.folder, they, they)
			os.Chmod(filepath.Join(w.victim, "secret"), 0o600)
			os.Link(filepath.Join(w.victim, "secret"), filepath.Join(w.folder, "lock"))
		}, apply, exitOK, ""},
		"the file is a hard link to a set-uid program": {true, func(t *testing.T, w records) {
			os.Chmod(filepath.Join(w.victim, "a.py"), 0o755|os.ModeSetuid)
			os.Remove(filepath.Join(w.site, "sglang", "a.py"))
			os.Link(filepath.Join(w.victim, "a.py"), filepath.Join(w.site, "sglang", "a.py"))
		}, apply, exitRefused, "site/sglang/a.py"},
		"the file is their link": {true, func(t *testing.T, w records) {
			os.Remove(filepath.Join(w.site, "sglang", "a.py"))
			theirLink(t, filepath.Join(w.victim, "a.py"), filepath.Join(w.site, "sglang", "a.py"))
		}, apply, exitRefused, "site/sglang/a.py"},
		"the folder is their link": {true, func(t *testing.T, w records) {
			os.RemoveAll(filepath.Join(w.site, "sglang"))
			theirLink(t, w.victim, filepath.Join(w.site, "sglang"))
		}, apply, exitRefused, "site/sglang"},
		"the entry would be made behind their link": {true, func(t *testing.T, w records) {
			os.Mkdir(filepath.Join(w.victim, "empty"), 0o755)
			theirLink(t, filepath.Join(w.victim, "empty"), filepath.Join(w.site, "away"))
		}, append(apply[:len(apply):len(apply)], "--sitecustomize", "site/away/sitecustomize.py"), exitRefused, "site/away"},
		"their link is in the place of bytecode": {true, func(t *testing.T, w records) {
			lay(t, filepath.Join(w.victim, "pyc", "a.cpython-311.pyc"), "theirs not")
			theirLink(t, filepath.Join(w.victim, "pyc"), filepath.Join(w.site, "sglang", "__pycache__"))
		}, apply, exitRefused, "__pycache__"},
		"a journal for the system's sitecustomize": {false, func(t *testing.T, w records) {
			w.journal(t, "", filepath.Join(w.dir, entry), w.keep(t, "import evil\n"), w.digest(t, entry))
		}, told(revert), exitBroken, entry},
		"a journal that would remove it": {false, func(t *testing.T, w records) {
			w.journal(t, "", filepath.Join(w.dir, entry), "", w.digest(t, entry))
		}, told(revert), exitBroken, entry},
		"a journal with a block of its own": {false, func(t *testing.T, w records) {
			evil := strings.ReplaceAll(w.text(t, entry), "SGLANG_X", "LD_AUDIT")
			w.journal(t, "", filepath.Join(w.dir, entry), w.keep(t, evil), w.digest(t, entry))
		}, told(revert), exitBroken, "LD_AUDIT"},
		"a journal for a file behind a link of root's": {false, func(t *testing.T, w records) {
			w.away(t)
			w.journal(t, "sglang/a.py", filepath.Join(w.victim, "a.py"), w.keep(t, "import evil\n"), digests.after)
		}, revert, exitBroken, "victim/a.py"},
		"a receipt for a file behind a link of root's": {false, func(t *testing.T, w records) {
			w.away(t)
			evil := w.keep(t, "import evil\n")
			w.edit(t, func(r map[string]any) { r["files"].([]any)[0].(map[string]any)["pristine"] = evil })
		}, revert, exitRefused, "victim/a.py"},
		"a receipt that names a FIFO as the older entry": {false, func(t *testing.T, w records) {
			syscall.Mkfifo(filepath.Join(w.victim, "fifo"), 0o644)
			w.edit(t, func(r map[string]any) {
				r["entry"] = map[string]any{"path": filepath.Join(w.victim, "fifo"), "real": filepath.Join(w.victim, "fifo")}
			})
		}, revert, exitOK, ""},
		"a receipt that names a FIFO in the install": {false, func(t *testing.T, w records) {
			fifo := filepath.Join(w.site, "old", "sitecustomize.py")
			os.Mkdir(filepath.Dir(fifo), 0o755)
			syscall.Mkfifo(fifo, 0o644)
			w.edit(t, func(r map[string]any) { r["entry"] = map[string]any{"path": fifo, "real": fifo} })
		}, revert, exitRefused, "site/old/sitecustomize.py"},
		"a receipt that names /dev/zero as the older entry": {false, func(t *testing.T, w records) {
			w.edit(t, func(r map[string]any) { r["entry"] = map[string]any{"path": "/dev/zero", "real": "/dev/zero"} })
		}, revert, exitOK, ""},
		"the version is a FIFO": {true, func(t *testing.T, w records) {
			os.Remove(filepath.Join(w.site, "sglang", "version.py"))
			syscall.Mkfifo(filepath.Join(w.site, "sglang", "version.py"), 0o644)
			syscall.Mkfifo(filepath.Join(w.site, "CACHEDIR.TAG"), 0o644)
			os.Mkdir(filepath.Join(w.site, "sglang-1.dist-info"), 0o755)
			syscall.Mkfifo(filepath.Join(w.site, "sglang-1.dist-info", "METADATA"), 0o644)
			syscall.Mkfifo(filepath.Join(w.site, "sglang", "__pycache__"), 0o644)
		}, apply, exitOK, ""},
		"the version has 10 GB": {true, func(t *testing.T, w records) {
			os.Truncate(filepath.Join(w.site, "sglang", "version.py"), 10<<30)
			os.WriteFile(filepath.Join(w.site, "CACHEDIR.TAG"), nil, 0o644)
			os.Truncate(filepath.Join(w.site, "CACHEDIR.TAG"), 10<<30)
		}, apply, exitOK, ""},
		"the file is a FIFO": {true, func(t *testing.T, w records) {
			os.Remove(filepath.Join(w.site, "sglang", "a.py"))
			syscall.Mkfifo(filepath.Join(w.site, "sglang", "a.py"), 0o644)
		}, apply, exitRefused, "site/sglang/a.py"},
		"the file has 10 GB": {true, func(t *testing.T, w records) {
			os.Truncate(filepath.Join(w.site, "sglang", "a.py"), 10<<30)
		}, apply, exitRefused, "site/sglang/a.py"},
		"the file is a device": {true, func(t *testing.T, w records) {
			os.Remove(filepath.Join(w.site, "sglang", "a.py"))
			if err := syscall.Mknod(filepath.Join(w.site, "sglang", "a.py"), syscall.S_IFCHR|0o666, 1<<8|5); err != nil {
				t.Skip(err)
			}
		}, apply, exitRefused, "site/sglang/a.py"},
		"the file is a folder": {true, func(t *testing.T, w records) {
			os.Remove(filepath.Join(w.site, "sglang", "a.py"))
			os.Mkdir(filepath.Join(w.site, "sglang", "a.py"), 0o755)
		}, apply, exitRefused, "site/sglang/a.py"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, site := ground(t)
			goodSet(t, dir)
			w := records{dir, site, filepath.Join(site, ".sgpatch"), filepath.Join(dir, "victim")}
			lay(t, filepath.Join(w.victim, "sitecustomize.py"), "import victim\n")
			lay(t, filepath.Join(w.victim, "a.py"), before)
			lay(t, filepath.Join(w.victim, "secret"), "root's\n")
			theirs(t, site)
			if a.before {
				a.make(t, w)
			} else {
				first := apply
				if strings.Contains(strings.Join(a.args, " "), entry) {
					first = told(apply)
				}
				if r := attacked(t, 0, dir, first...); r.code != exitOK {
					t.Fatal(r.stderr)
				}
				a.make(t, w)
				theirs(t, w.folder)
			}
			was := census(t, w.victim)
			r := attacked(t, 0, dir, a.args...)
			if a.code == exitOK && r.code != exitOK {
				t.Errorf("exit %d: %s", r.code, r.stderr)
			}
			if a.code != exitOK {
				r.refuses(t, a.code, a.names)
			}
			unchanged(t, was, w.victim)
		})
	}
}

func (w records) text(t *testing.T, rel string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, rel))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (w records) digest(t *testing.T, rel string) string {
	return string(patchset.DigestOf([]byte(w.text(t, rel))))
}

// away moves the patched file out of the install, to root, behind root's link.
func (w records) away(t *testing.T) {
	t.Helper()
	from, to := filepath.Join(w.site, "sglang", "a.py"), filepath.Join(w.victim, "a.py")
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
	os.Chown(to, 0, 0)
	if err := os.Symlink(to, from); err != nil {
		t.Fatal(err)
	}
}

// TestSharedEntryIsRecovered: the guard on the system's sitecustomize does not
// stand in the way of a commit that was really interrupted.
func TestSharedEntryIsRecovered(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	dir, site := ground(t)
	goodSet(t, dir)
	w := records{dir, site, filepath.Join(site, ".sgpatch"), filepath.Join(dir, "etc")}
	lay(t, filepath.Join(w.victim, "sitecustomize.py"), "import theirs\n")
	theirs(t, site)
	args := []string{"--root", "site", "--sitecustomize", "etc/sitecustomize.py"}
	if r := attacked(t, 0, dir, append([]string{"apply", "x", "--patches", "sets"}, args...)...); r.code != exitOK {
		t.Fatal(r.stderr)
	}
	w.journal(t, "", filepath.Join(w.victim, "sitecustomize.py"), w.keep(t, "import theirs\n"), w.digest(t, "etc/sitecustomize.py"))
	theirs(t, w.folder)
	if r := attacked(t, 0, dir, append([]string{"revert"}, args...)...); r.code != exitOK {
		t.Fatal(r.stderr)
	}
	if got := w.text(t, "etc/sitecustomize.py"); got != "import theirs\n" {
		t.Errorf("%q", got)
	}
}

// TestTheirInterpreter: it runs as its owner, in that user's group alone,
// without root's terminal and tokens, and its answer leads root nowhere new.
func TestTheirInterpreter(t *testing.T) {
	needsRoot(t)
	dir, site := ground(t)
	goodSet(t, dir)
	victim := filepath.Join(dir, "victim")
	lay(t, filepath.Join(victim, "tool.py"), "import tool\n")
	lay(t, filepath.Join(victim, "shadow"), "root:*:1:0:9:7:::\n")
	os.Chmod(filepath.Join(victim, "shadow"), 0o600)
	if err := os.Symlink(filepath.Join(victim, "shadow"), filepath.Join(site, "sitecustomize.py")); err != nil {
		t.Fatal(err)
	}
	fake := filepath.Join(dir, "v", "bin", "python")
	lay(t, fake, "")
	seen := filepath.Join(dir, "v", "seen")
	lay(t, seen, "")
	was := census(t, victim)
	t.Setenv("HF_TOKEN", "of root's")
	for name, body := range map[string]string{
		"another program as the sitecustomize": answer(site, filepath.Join(victim, "tool.py")),
		"root's link to a secret":              answer(site, filepath.Join(site, "sitecustomize.py")),
		"a name that leads out":                answer(site, filepath.Join(site, "..", "victim", "tool.py")),
		"no end":                               "exec yes",
		"no answer":                            "exit 0",
	} {
		t.Run(name, func(t *testing.T) {
			lay(t, fake, "#!/bin/sh\n{ id -u; id -g; id -G; echo token=$HF_TOKEN; [ $(cut -d' ' -f6 /proc/$$/stat) = $$ ] && echo alone; } >"+seen+"\n"+body+"\n")
			os.Chmod(fake, 0o755)
			theirs(t, filepath.Join(dir, "v"))
			os.Chown(fake, they, 0)
			r := attacked(t, 0, dir, "apply", "x", "--patches", "sets", "--python", fake)
			r.refuses(t, exitRefused, dir)
			unchanged(t, was, victim)
			if got, _ := os.ReadFile(seen); string(got) != fmt.Sprintf("%d\n%d\n%d\ntoken=\nalone\n", they, they, they) {
				t.Errorf("it ran as\n%s", got)
			}
		})
	}
}

// answer is a shell's part that says what an interpreter would have to say.
func answer(site, custom string) string {
	var b strings.Builder
	say := func(key string, values ...string) {
		fmt.Fprintf(&b, "echo \"$3 %x", key)
		for _, v := range values {
			b.WriteString(" " + orText(hex.EncodeToString([]byte(v)), "-"))
		}
		b.WriteString("\"\n")
	}
	say("python", "/v/bin/python", "/v", "/v", "3.11.1", "cpython-311", "0", "", "", "a70d0d0a")
	say("sglang", filepath.Join(site, "sglang", "__init__.py"), filepath.Join(site, "sglang"))
	say("path", site)
	say("purelib", site)
	say("sitecustomize", custom, "1", "1")
	b.WriteString("echo \"$3 end\"\n")
	return b.String()
}

// TestTheirTexts: an interpreter of root's runs as the owner of what it executes
// at its start: pyvenv.cfg, which the owner of its folder replaces, and the texts
// in the site directories.
func TestTheirTexts(t *testing.T) {
	needsRoot(t)
	for _, part := range []string{"", "lib/python3.11/site-packages", "lib/python3.11/site-packages/sitecustomize.py", "bin/python"} {
		dir, _ := ground(t)
		goodSet(t, dir)
		venv, seen := filepath.Join(dir, "v"), filepath.Join(dir, "seen")
		lay(t, filepath.Join(venv, "lib", "python3.11", "site-packages", "sitecustomize.py"), "")
		lay(t, filepath.Join(venv, "bin", "python"), "#!/bin/sh\nid -u >"+seen+"\n")
		lay(t, seen, "")
		os.Chmod(filepath.Join(venv, "bin", "python"), 0o755)
		os.Chown(filepath.Join(venv, part), they, 0)
		os.Chown(seen, they, 0)
		attacked(t, 0, dir, "apply", "x", "--patches", "sets", "--python", "v/bin/python")
		if got, _ := os.ReadFile(seen); string(got) != fmt.Sprintln(they) {
			t.Errorf("%q is theirs, and it ran as %q", part, got)
		}
	}
}
