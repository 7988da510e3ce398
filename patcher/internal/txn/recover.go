package txn

import (
	"errors"
	"fmt"
	"io/fs"
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
	if receipt != nil && Digest(receipt) == j.Receipt {
		return d.tidy(j)
	}
	return d.rollback(j, paths)
}

// tidy ends a commit whose receipt is in place.
func (d *Dir) tidy(j *journal) (Recovery, error) {
	out := Recovery{Command: j.Command, Finished: true}
	for _, e := range j.Writes {
		if err := removeStaged(j, e.Path); err != nil {
			return out, err
		}
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
	if err := unix.Unlinkat(fd, j.staged(base), 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "unlink", Path: filepath.Join(dir, j.staged(base)), Err: err}
	}
	return nil
}

func (d *Dir) dropJournal() error {
	if err := unix.Unlinkat(d.fd, journalName, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "unlink", Path: filepath.Join(d.root, Folder, journalName), Err: err}
	}
	return unix.Fsync(d.fd)
}

// rollback puts back the old content of every target that has the new one.
func (d *Dir) rollback(j *journal, paths []string) (Recovery, error) {
	out := Recovery{Command: j.Command}
	for i, e := range slices.Backward(j.Writes) {
		state, err := d.putBack(j, e, paths[i])
		if err != nil {
			return out, err
		}
		switch state {
		case wasNew:
			out.Restored = append(out.Restored, e.Path)
		case wasOther:
			out.Left = append(out.Left, e.Path)
		}
	}
	return out, d.dropJournal()
}

const (
	wasOld = iota
	wasNew
	wasOther
)

func (d *Dir) putBack(j *journal, e entry, path string) (int, error) {
	if err := removeStaged(j, path); err != nil {
		return wasOther, err
	}
	dir, base := split(path)
	fd, err := openDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return wasOther, nil // uninstalled meanwhile
	}
	if err != nil {
		return wasOther, err
	}
	defer unix.Close(fd)
	have, err := digestAt(fd, base)
	switch {
	case err != nil:
		return wasOther, &fs.PathError{Op: "read", Path: path, Err: err}
	case have == e.Old:
		return wasOld, nil
	case have != e.New:
		return wasOther, nil
	}
	return wasNew, d.restore(j, e, fd, base, path)
}

func (d *Dir) restore(j *journal, e entry, fd int, base, path string) error {
	if e.Old == "" {
		if err := unix.Unlinkat(fd, base, 0); err != nil {
			return &fs.PathError{Op: "unlink", Path: path, Err: err}
		}
		return fsync(fd, path)
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
	if err := stageAndRename(fd, base, j.staged(base), w); err != nil {
		return &fs.PathError{Op: "restore", Path: path, Err: err}
	}
	return fsync(fd, path)
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
		err = unix.Renameat(fd, name, fd, base)
	}
	if err != nil {
		unix.Unlinkat(fd, name, 0)
	}
	return err
}

func fsync(fd int, path string) error {
	if err := unix.Fsync(fd); err != nil {
		return &fs.PathError{Op: "sync", Path: path, Err: err}
	}
	return nil
}
