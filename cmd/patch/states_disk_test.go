package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"testing"
)

// lay makes a world on disk, and nothing beside it.
func (f *fixture) lay(t *testing.T, w world) {
	t.Helper()
	for _, dir := range []string{f.root, filepath.Join(f.dir, "state")} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	layDown(t, f.root, f.tree(w))
}

func layDown(t *testing.T, root string, all contents) {
	t.Helper()
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range all {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func pickUp(t *testing.T, root string) contents {
	t.Helper()
	all := contents{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, path)
		all[rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// disk is everything below the fixture that a command may touch: modes, times
// and contents. Two that are equal differ in no byte.
func (f *fixture) disk(t *testing.T) contents {
	t.Helper()
	all := contents{}
	for _, dir := range []string{f.root, filepath.Join(f.dir, "state")} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // no state folder yet
			}
			st, err := d.Info()
			if err != nil || d.IsDir() {
				all[path] = "a directory"
				return err
			}
			text, err := os.ReadFile(path)
			all[path] = fmt.Sprintf("%s %d %s", st.Mode(), st.ModTime().UnixNano(), text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// differ lists the paths that are not the same in both, records left out.
func differ(a, b contents) []string {
	var all []string
	for path := range a {
		if a[path] != b[path] {
			all = append(all, path)
		}
	}
	for path := range b {
		if _, ok := a[path]; !ok {
			all = append(all, path)
		}
	}
	sort.Strings(all)
	return all
}

// do runs the program as a shell would, with --json, and returns its report.
func (f *fixture) do(t *testing.T, root string, args ...string) *Report {
	t.Helper()
	var stdout, stderr bytes.Buffer
	argv := append(append([]string{"sgpatch"}, args...), "--json", "--root", root, "--patches", f.sets)
	exit := run(argv, &stdout, &stderr)
	r := &Report{}
	if err := json.Unmarshal(stdout.Bytes(), r); err != nil {
		t.Fatalf("%v: %v: %s%s", args, err, stdout.String(), stderr.String())
	}
	if r.Exit != exit {
		t.Errorf("%v: exit %d in the report, %d outside", args, r.Exit, exit)
	}
	return r
}
