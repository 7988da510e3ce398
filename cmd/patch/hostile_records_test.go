package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sgpatch/patcher/patchset"
)

// records is an install with the set x in place, and files that are none of
// its business in dir/victim.
type records struct {
	dir, site, folder, victim string
}

func inPlace(t *testing.T) records {
	t.Helper()
	dir, site := ground(t)
	goodSet(t, dir)
	w := records{dir, site, filepath.Join(site, ".sgpatch"), filepath.Join(dir, "victim")}
	lay(t, filepath.Join(w.victim, "sitecustomize.py"), "import victim\n")
	lay(t, filepath.Join(w.victim, "a.py"), after)
	if r := attacked(t, os.Geteuid(), dir, "apply", "x", "--patches", "sets", "--root", site); r.code != exitOK {
		t.Fatalf("exit %d: %s", r.code, r.stderr)
	}
	return w
}

// keep puts a content into the store and returns its digest.
func (w records) keep(t *testing.T, text string) string {
	t.Helper()
	digest := string(patchset.DigestOf([]byte(text)))
	lay(t, filepath.Join(w.folder, "objects", digest), text)
	return digest
}

// edit changes a record by its JSON.
func (w records) edit(t *testing.T, change func(r map[string]any)) {
	t.Helper()
	path := filepath.Join(w.folder, "receipt.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r map[string]any
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	change(r)
	if text, err = json.Marshal(r); err != nil {
		t.Fatal(err)
	}
	lay(t, path, string(text))
}

// journal lays down the journal of a commit that never was.
func (w records) journal(t *testing.T, rel, path, old, new string) {
	t.Helper()
	lay(t, filepath.Join(w.folder, "journal.json"), journalOf(entryOf(rel, path, old, new)))
}

func entryOf(rel, path, old, new string) string {
	return fmt.Sprintf(`{"rel":%q,"path":%q,"old":%q,"new":%q,"perm":511}`, rel, path, old, new)
}

func journalOf(entries ...string) string {
	return fmt.Sprintf(`{"schema":1,"id":"0123456789ab","command":"apply","started":"2026-01-01T00:00:00Z","receipt":%q,"writes":[%s]}`, strings.Repeat("0", 64), strings.Join(entries, ","))
}

// forged is one attack by records.
type forged struct {
	make  func(t *testing.T, w records)
	code  int    // of revert
	names string // what the refusal names, from the install's root
	lock  bool   // only a command that takes the lock meets it
}

var digests = struct{ before, after, none string }{string(patchset.DigestOf([]byte(before))), string(patchset.DigestOf([]byte(after))), strings.Repeat("1", 64)}

// TestForgedRecords: a receipt or a journal that names what it may not is
// refused before anything is read or written by it.
func TestForgedRecords(t *testing.T) {
	t.Parallel()
	for _, group := range []map[string]forged{forgedJournals(), forgedReceipts(), oddRecords()} {
		for name, f := range group {
			t.Run(name, func(t *testing.T) {
				w := inPlace(t)
				f.make(t, w)
				was := census(t, w.dir)
				for _, args := range [][]string{{"revert"}, {"apply", "x", "--patches", "sets"}} {
					if f.lock && args[0] == "apply" {
						continue // there is nothing to do
					}
					attacked(t, os.Geteuid(), w.dir, append(args, "--root", w.site)...).refuses(t, f.code, filepath.Join(w.site, f.names))
				}
				if r := attacked(t, os.Geteuid(), w.dir, "status", "--root", w.site); !f.lock && f.code == exitRefused && r.code != exitRefused {
					t.Errorf("status: exit %d", r.code)
				}
				unchanged(t, was, w.dir)
			})
		}
	}
}

func forgedJournals() map[string]forged {
	all := map[string]forged{}
	add := func(name string, make func(t *testing.T, w records)) {
		all["journal: "+name] = forged{make: make, code: exitBroken, names: ".sgpatch/journal.json"}
	}
	writes := func(name, rel, path, old, new string) {
		add(name, func(t *testing.T, w records) {
			w.keep(t, before)
			w.journal(t, rel, strings.NewReplacer("SITE", w.site, "VICTIM", w.victim).Replace(path), old, new)
		})
	}
	writes("a file outside", "sglang/a.py", "VICTIM/a.py", digests.before, digests.after)
	writes("a path that climbs", "../victim/a.py", "VICTIM/a.py", digests.before, digests.after)
	writes("a real path that climbs", "sglang/a.py", "SITE/sglang/../../victim/a.py", digests.before, digests.after)
	writes("an absolute path", "/etc/passwd", "/etc/passwd", digests.before, digests.after)
	writes("a sitecustomize elsewhere", "", "VICTIM/sitecustomize.py", digests.before, digests.after)
	writes("a file as a sitecustomize", "", "SITE/sglang/a.py", digests.before, digests.after)
	writes("removes a file outside", "", "VICTIM/a.py", "", digests.after)
	writes("the receipt", ".sgpatch/receipt.json", "SITE/.sgpatch/receipt.json", digests.before, digests.after)
	writes("deep records", "sglang/.sgpatch/x", "SITE/sglang/.sgpatch/x", digests.before, digests.after)
	writes("a relative path", "sglang/a.py", "sglang/a.py", digests.before, digests.after)
	writes("no digest", "sglang/a.py", "SITE/sglang/a.py", "../../x", digests.after)
	writes("a content that is not there", "sglang/a.py", "SITE/sglang/a.py", digests.none, digests.after)
	add("a content with another digest", func(t *testing.T, w records) {
		lay(t, filepath.Join(w.folder, "objects", digests.none), "import evil\n")
		w.journal(t, "sglang/a.py", filepath.Join(w.site, "sglang", "a.py"), digests.none, digests.after)
	})
	add("a content that is a link", func(t *testing.T, w records) {
		os.Remove(filepath.Join(w.folder, "objects", digests.before))
		lay(t, filepath.Join(w.victim, "b.py"), before)
		os.Symlink(filepath.Join(w.victim, "b.py"), filepath.Join(w.folder, "objects", digests.before))
		w.journal(t, "sglang/a.py", filepath.Join(w.site, "sglang", "a.py"), digests.before, digests.after)
	})
	add("a content that is a FIFO", func(t *testing.T, w records) {
		os.Remove(filepath.Join(w.folder, "objects", digests.before))
		syscall.Mkfifo(filepath.Join(w.folder, "objects", digests.before), 0o644)
		w.journal(t, "sglang/a.py", filepath.Join(w.site, "sglang", "a.py"), digests.before, digests.after)
	})
	add("the store is a link", func(t *testing.T, w records) {
		os.Rename(filepath.Join(w.folder, "objects"), filepath.Join(w.victim, "objects"))
		os.Symlink(filepath.Join(w.victim, "objects"), filepath.Join(w.folder, "objects"))
		w.journal(t, "sglang/a.py", filepath.Join(w.site, "sglang", "a.py"), digests.before, digests.after)
	})
	add("a set-uid file", func(t *testing.T, w records) {
		if err := os.Chmod(filepath.Join(w.site, "sglang", "a.py"), 0o755|os.ModeSetuid); err != nil {
			t.Fatal(err)
		}
		w.journal(t, "sglang/a.py", filepath.Join(w.site, "sglang", "a.py"), w.keep(t, "#!/bin/sh\n"), digests.after)
	})
	for name, text := range map[string]string{
		"another schema":   `{"schema":2}`,
		"an id that leads": strings.Replace(journalOf(), "0123456789ab", "/../../../ab", 1),
		"other types":      `{"schema":1,"writes":"x"}`,
		"a list":           `[]`,
		"many writes":      journalOf(strings.Split(strings.TrimSuffix(strings.Repeat(entryOf("a", "/a", "", "")+"\n", 20_000), "\n"), "\n")...),
	} {
		add(name, func(t *testing.T, w records) { lay(t, filepath.Join(w.folder, "journal.json"), text) })
	}
	for _, name := range []string{"a set-uid file", "a content that is not there", "a content with another digest", "a content that is a link", "a content that is a FIFO", "the store is a link"} {
		f := all["journal: "+name]
		f.names = ""
		all["journal: "+name] = f
	}
	return all
}

func forgedReceipts() map[string]forged {
	all := map[string]forged{}
	add := func(name string, change func(r map[string]any)) {
		all["receipt: "+name] = forged{make: func(t *testing.T, w records) { w.edit(t, change) }, code: exitRefused, names: ".sgpatch/receipt.json"}
	}
	first := func(r map[string]any, list string) map[string]any { return r[list].([]any)[0].(map[string]any) }
	for name, path := range map[string]string{
		"a path that climbs": "../victim/a.py", "an absolute path": "/etc/passwd", "records": ".sgpatch/lock", "deep records": "sglang/.sgpatch/x",
		"NUL": "sglang/a\x00.py", "newline": "sglang/a\n.py", "escape": "sglang/\x1b[2Ja.py", "nothing": "", "the root": ".", "a path that is not clean": "sglang//a.py",
	} {
		add(name, func(r map[string]any) { first(r, "files")["path"] = path })
	}
	add("no digest", func(r map[string]any) { first(r, "files")["pristine"] = "../../../etc/passwd" })
	add("no digest of a diff", func(r map[string]any) { first(r, "sets")["diff"] = "../receipt.json" })
	add("an id that leads", func(r map[string]any) { first(r, "sets")["id"] = "../x" })
	add("an id that escapes", func(r map[string]any) { first(r, "sets")["id"] = "\x1b[2J" })
	add("a variant that escapes", func(r map[string]any) { first(r, "sets")["variant"] = "\x1b[2J" })
	add("a version that escapes", func(r map[string]any) { first(r, "sets")["version"] = "\x1b[2J" })
	add("a name that is code", func(r map[string]any) {
		first(r, "sets")["env"] = []any{map[string]any{"name": "X'] = 1", "value": "1"}}
	})
	add("a relative entry", func(r map[string]any) { r["entry"] = map[string]any{"path": "x", "real": "x"} })
	add("an entry that escapes", func(r map[string]any) { r["entry"] = map[string]any{"path": "/\x1b[2J", "real": "/\x1b[2J"} })
	add("many files", func(r map[string]any) {
		one := first(r, "files")
		var many []any
		for i := range 20_000 {
			many = append(many, map[string]any{"path": fmt.Sprintf("f%d", i), "pristine": one["pristine"], "want": one["want"]})
		}
		r["files"] = many
	})
	add("many sets", func(r map[string]any) {
		var many []any
		for i := range 20_000 {
			many = append(many, map[string]any{"id": fmt.Sprintf("s%d", i), "version": "1"})
		}
		r["sets"] = many
	})
	add("the same file twice", func(r map[string]any) { r["files"] = append(r["files"].([]any), first(r, "files")) })
	return all
}

// oddRecords are records that are no files, or too much of them.
func oddRecords() map[string]forged {
	all := map[string]forged{}
	for name, make := range map[string]func(path, victim string) error{
		"a FIFO":              func(path, _ string) error { return syscall.Mkfifo(path, 0o644) },
		"a folder":            func(path, _ string) error { return os.Mkdir(path, 0o755) },
		"a link":              func(path, victim string) error { return os.Symlink(filepath.Join(victim, "a.py"), path) },
		"a link to /dev/zero": func(path, _ string) error { return os.Symlink("/dev/zero", path) },
		"10 GB, sparse":       func(path, _ string) error { os.WriteFile(path, nil, 0o644); return os.Truncate(path, 10<<30) },
	} {
		for _, file := range []string{"receipt.json", "journal.json"} {
			all[file+" is "+name] = forged{make: func(t *testing.T, w records) {
				path := filepath.Join(w.folder, file)
				os.Remove(path)
				if err := make(path, w.victim); err != nil {
					t.Fatal(err)
				}
			}, code: exitRefused, names: ".sgpatch"}
		}
	}
	for name, text := range map[string]string{
		"deep":      strings.Repeat(`{"a":`, 1_000_000),
		"garbage":   "\x00\x01\x02",
		"empty":     "",
		"15 MB":     `{"schema":1,"reason":"` + strings.Repeat("x", 15<<20) + `","schema":7}`,
		"a number":  "1e999999",
		"deep list": `{"schema":1,"sets":` + strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000) + "}",
	} {
		all["receipt.json is "+name] = forged{make: func(t *testing.T, w records) { lay(t, filepath.Join(w.folder, "receipt.json"), text) }, code: exitRefused, names: ".sgpatch/receipt.json"}
	}
	all["the lock is a FIFO"] = forged{make: func(t *testing.T, w records) {
		path := filepath.Join(w.folder, "lock")
		os.Remove(path)
		syscall.Mkfifo(path, 0o644)
	}, code: exitRefused, names: ".sgpatch/lock", lock: true}
	all["the lock is a link"] = forged{make: func(t *testing.T, w records) {
		path := filepath.Join(w.folder, "lock")
		os.Remove(path)
		os.Symlink(filepath.Join(w.victim, "lock"), path)
	}, code: exitRefused, names: ".sgpatch/lock", lock: true}
	all["the folder is a link"] = forged{make: func(t *testing.T, w records) {
		os.Rename(w.folder, filepath.Join(w.victim, "records"))
		os.Symlink(filepath.Join(w.victim, "records"), w.folder)
	}, code: exitRefused, names: ".sgpatch"}
	return all
}
