package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"sgpatch/patcher/patchset"
	"sgpatch/patches"
)

// loadError says which patch set cannot be used.
type loadError struct{ err error }

func (e *loadError) Error() string { return e.err.Error() }
func (e *loadError) Unwrap() error { return e.err }

// shipped are the sets of this program. They cannot change while it runs.
var shipped = sync.OnceValues(func() ([]patchset.Set, error) { return loadFrom(patches.FS, "", nil, patchset.Reload) })

// loadSets returns the sets of this program and of --patches. An id that stands
// twice is refused: nobody's set silently takes the place of another.
func (o *options) loadSets() (all []patchset.Set, mine map[string]bool, err error) {
	mine = map[string]bool{}
	if all, err = shipped(); err != nil {
		return nil, nil, &loadError{err}
	}
	all = slices.Clone(all)
	for _, s := range all {
		mine[s.ID] = true
	}
	for _, c := range o.carried { // from the machine that called this one
		if all, err = loadFrom(c.Files, c.Dir, all, patchset.LoadNamed); err != nil {
			return nil, nil, &loadError{err}
		}
	}
	for _, dir := range o.patches {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, nil, &loadError{fmt.Errorf("--patches %s: %w", dir, err)}
		}
		all, err = loadFrom(folder{root}, dir, all, patchset.LoadNamed)
		root.Close()
		if err != nil {
			return nil, nil, &loadError{err}
		}
	}
	return all, mine, nil
}

// Limits of all sets together; patchset has those of one.
const (
	maxWeight  = 8 << 20 // bytes
	maxFolders = 256
)

// weight is about what the sets hold in bytes.
func weight(all []patchset.Set) (n int) {
	for _, s := range all {
		for _, v := range s.Variants {
			n += len(v.Text)
		}
		n += len(s.Check) + 160*len(s.Rows)
	}
	return n
}

// folder reads what lies in a directory, links that leave it not included. A
// pipe in the place of a file is opened without waiting for somebody to write.
type folder struct{ *os.Root }

func (f folder) Open(name string) (fs.File, error) {
	return f.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// loadFrom adds every folder with a manifest in it, or the folder itself.
func loadFrom(fsys fs.FS, dir string, all []patchset.Set, load func(fs.FS, string) (patchset.Set, error)) ([]patchset.Set, error) {
	folders, err := setFolders(fsys, dir)
	if err != nil {
		return nil, err
	}
	for _, name := range folders {
		sub, err := fs.Sub(fsys, name)
		if err != nil {
			return nil, err
		}
		id := name
		if name == "." {
			id = "" // the folder itself, under whatever name
		}
		s, err := load(sub, id)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
		if slices.ContainsFunc(all, func(o patchset.Set) bool { return o.ID == s.ID }) {
			return nil, fmt.Errorf("%s: there is a set %s already", filepath.Join(dir, name), s.ID)
		}
		if all = append(all, s); weight(all) > maxWeight {
			return nil, fmt.Errorf("%s: with this one the sets are larger than %d MiB together", filepath.Join(dir, name), maxWeight>>20)
		}
	}
	slices.SortFunc(all, func(a, b patchset.Set) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// setFolders lists the folders with a manifest in them, or "." alone.
func setFolders(fsys fs.FS, dir string) ([]string, error) {
	folders := []string{"."}
	if _, err := fs.Stat(fsys, "manifest.toml"); errors.Is(err, fs.ErrNotExist) {
		entries, err := fs.ReadDir(fsys, ".")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		folders = nil
		for _, e := range entries {
			_, err := fs.Stat(fsys, e.Name()+"/manifest.toml")
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) { // one that cannot be read is refused later
				folders = append(folders, e.Name())
			}
		}
	}
	if len(folders) > maxFolders {
		return nil, fmt.Errorf("%s: more than %d patch sets", dir, maxFolders)
	}
	if len(folders) == 0 {
		return nil, fmt.Errorf("%s: no folder with a manifest.toml in it", dir)
	}
	return folders, nil
}

// pick returns the sets with these ids, in that order.
func pick(all []patchset.Set, ids []string) []patchset.Set {
	var some []patchset.Set
	for _, id := range ids {
		for _, s := range all {
			if s.ID == id {
				some = append(some, s)
			}
		}
	}
	return some
}
