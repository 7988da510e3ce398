package txn

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Recovery says what was found of an interrupted commit.
type Recovery struct {
	Command  string   // the command that was interrupted, "" if none was
	Finished bool     // it was complete but for tidying up
	Restored []string // files that were put back
	Left     []string // files whose content is neither old nor new: not touched
}

// Recover settles an interrupted commit. The journal may have come with
// somebody's image: allow says whether an entry may name this real path, as that
// of a path from the root or (rel "") as a sitecustomize, and give it the content
// of digest old. If it may not, the journal stays and nothing is touched.
func (d *Dir) Recover(allow func(rel, path, old string) error) (Recovery, error) {
	text, err := optional(readAt(d.fd, journalName, maxRecord))
	if err != nil || text == nil {
		return Recovery{}, inFolder(d.root, err)
	}
	j, err := parseJournal(text)
	if err != nil && !errors.Is(err, errTorn) {
		return Recovery{}, fmt.Errorf("%s: %w", filepath.Join(d.root, Folder, journalName), err)
	}
	if err != nil {
		// A commit touches nothing before its journal is on disk: a torn one belongs
		// to a commit that a power cut ended before it began.
		return Recovery{Command: "command (its journal is torn)"}, d.dropJournal()
	}
	paths := make([]string, len(j.Writes))
	for i, e := range j.Writes {
		if err = allow(e.Rel, e.Path, e.Old); err != nil {
			return Recovery{}, fmt.Errorf("%s names %s: %w", filepath.Join(d.root, Folder, journalName), e.Path, err)
		}
		paths[i] = e.Path
	}
	receipt, err := d.Receipt()
	if err != nil {
		return Recovery{}, inFolder(d.root, err)
	}
	if receipt != nil && Digest(receipt) == j.Receipt && (!j.Same || j.done()) {
		return d.tidy(j)
	}
	return d.rollback(j, paths)
}

// done says whether every target has its new content.
func (j *journal) done() bool {
	return !slices.ContainsFunc(j.Writes, func(e entry) bool {
		have, err := digestAt(unix.AT_FDCWD, e.Path)
		return err != nil || have != e.New
	})
}

// tidy ends a commit whose receipt is in place.
func (d *Dir) tidy(j *journal) (Recovery, error) {
	out := Recovery{Command: j.Command, Finished: true}
	for _, e := range j.Writes {
		if err := removeStaged(j, e.Path); err != nil {
			return out, err
		}
	}
	// without this a power cut could take the receipt and leave the journal's end
	if err := d.sync(); err != nil {
		return out, err
	}
	return out, d.dropJournal()
}

func removeStaged(j *journal, path string) error {
	dir, base := split(path)
	fd, err := openDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unlinkat(fd, j.staged(base)); err != nil {
		return &fs.PathError{Op: "unlink", Path: filepath.Join(dir, j.staged(base)), Err: err}
	}
	return nil
}

// Staged finds files that a commit had staged for these targets, by their real
// paths, and that no journal speaks of: a power cut ended it before its journal
// was on the disk. Only a holder of the locks can tell them from those of a
// commit at work.
func Staged(targets []string) []string {
	bases := map[string]map[string]bool{}
	for _, t := range targets {
		dir, base := split(t)
		if bases[dir] == nil {
			bases[dir] = map[string]bool{}
		}
		bases[dir][base] = true
	}
	var all []string
	for dir, wanted := range bases {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if base, ok := stagedFor(e.Name()); ok && wanted[base] && e.Type().IsRegular() {
				all = append(all, filepath.Join(dir, e.Name()))
			}
		}
	}
	slices.Sort(all)
	return all
}

// Sweep removes what Staged found.
func (d *Dir) Sweep(staged []string) error {
	for _, p := range staged {
		dir, name := split(p)
		if _, ok := stagedFor(name); !ok {
			continue
		}
		fd, err := openDir(dir)
		if err != nil {
			return err
		}
		err = unlinkat(fd, name)
		unix.Close(fd)
		if err != nil {
			return &fs.PathError{Op: "unlink", Path: p, Err: err}
		}
	}
	return nil
}

func (d *Dir) sync() error { return fsync(d.fd, filepath.Join(d.root, Folder)) }

// dropJournal ends a commit, one way or the other. A journal that a power cut
// brings back is settled once more, and finds nothing to do.
func (d *Dir) dropJournal() error {
	unlinkat(d.fd, receiptName+suffix) // of a commit that did not come to it; the next one would replace it
	if err := unlinkat(d.fd, journalName); err != nil {
		return &fs.PathError{Op: "unlink", Path: filepath.Join(d.root, Folder, journalName), Err: err}
	}
	fsyncfd(d.fd)
	return nil
}

// stuckError says that a target could not be put back, or not be read.
type stuckError struct{ error }

func (e stuckError) Unwrap() error { return e.error }

// rollback puts back the old content of every target that has the new one, as
// far as that can be done. The journal goes only if all went well; an error with
// a *stuckError in it means that some target may still be new.
func (d *Dir) rollback(j *journal, paths []string) (Recovery, error) {
	out := Recovery{Command: j.Command}
	var failed error
	for i, e := range slices.Backward(j.Writes) {
		state, err := d.putBack(j, e, paths[i])
		failed = errors.Join(failed, err)
		switch state {
		case wasNew:
			out.Restored = append(out.Restored, e.Path)
		case wasOther:
			out.Left = append(out.Left, e.Path)
		}
	}
	if failed != nil {
		return out, failed
	}
	return out, d.dropJournal()
}

const (
	wasOld = iota
	wasNew
	wasOther
	unknown
)

func (d *Dir) putBack(j *journal, e entry, path string) (int, error) {
	dir, base := split(path)
	fd, err := openDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return wasOther, nil // uninstalled meanwhile
	}
	if err != nil {
		return unknown, stuckError{err}
	}
	defer unix.Close(fd)
	have, err := digestAt(fd, base)
	state := wasOther
	switch {
	case err != nil:
		return unknown, stuckError{&fs.PathError{Op: "read", Path: path, Err: err}}
	case have == e.Old:
		state = wasOld
	case have == e.New:
		if err := d.restore(j, e, fd, base, path); err != nil {
			return unknown, stuckError{err}
		}
		state = wasNew
	}
	if err := unlinkat(fd, j.staged(base)); err != nil {
		return state, &fs.PathError{Op: "unlink", Path: filepath.Join(dir, j.staged(base)), Err: err}
	}
	// also of an old one: a command before us may have put it back and been killed
	return state, fsync(fd, dir)
}

func (d *Dir) restore(j *journal, e entry, fd int, base, path string) error {
	if e.Old == "" {
		if err := unlinkat(fd, base); err != nil {
			return &fs.PathError{Op: "unlink", Path: path, Err: err}
		}
		return nil
	}
	data, err := object(d.fd, d.root, e.Old)
	if err != nil {
		return err
	}
	if err := Replaceable(path); err != nil {
		return err
	}
	w := Write{Data: data, Perm: e.Perm}
	if e.Mtime != 0 {
		w.Mtime = time.Unix(0, e.Mtime)
	}
	unlinkat(fd, j.staged(base)) // what the commit, or a command that recovered, had begun
	if err := stageAndRename(fd, base, j.staged(base), w); err != nil {
		return &fs.PathError{Op: "restore", Path: path, Err: err}
	}
	return nil
}

// stageAndRename replaces one file, its content on disk before its name.
func stageAndRename(fd int, base, name string, w Write) error {
	var s syncs
	defer s.close()
	err := stage(fd, base, name, w, &s)
	if err == nil {
		err = s.wait()
	}
	if err == nil {
		err = renameat(fd, name, base)
	}
	if err != nil {
		unlinkat(fd, name)
	}
	return err
}

func fsync(fd int, path string) error {
	if err := fsyncfd(fd); err != nil {
		return &fs.PathError{Op: "sync", Path: path, Err: err}
	}
	return nil
}
