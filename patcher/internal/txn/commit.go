package txn

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Commit makes all writes, and the receipt with them, or none of them; keep is
// stored beside the originals. The error is a *CommitError, a *ChangedError, or
// one of the file system's from before anything was touched.
func (d *Dir) Commit(command string, writes []Write, keep [][]byte, receipt []byte) error {
	c := newCommit(d, command, writes, keep, receipt)
	defer c.close()
	if err := c.look(); err != nil {
		return err
	}
	for _, step := range []func() error{c.prepare, c.replaceAll, c.finish} {
		if err := step(); err != nil {
			return c.abort(err)
		}
	}
	return nil
}

func newCommit(d *Dir, command string, writes []Write, keep [][]byte, receipt []byte) *commit {
	j := &journal{Schema: 1, ID: newID(), Command: command, Started: time.Now().UTC(), Receipt: Digest(receipt)}
	return &commit{dir: d, journal: j, writes: writes, variants: keep, receipt: receipt, dirs: map[string]int{}, narrowest: 0o644}
}

func newID() string {
	return fmt.Sprintf("%012x", rand.Uint64()>>16)
}

type commit struct {
	dir      *Dir
	journal  *journal
	writes   []Write
	variants [][]byte
	keep     []content
	receipt  []byte
	before   []byte         // the receipt that the new one replaces
	dirs     map[string]int // open directories of the targets
	sync     syncs
	began    bool // there may be a journal

	narrowest uint32 // of the modes of the targets: nothing is stored for more people than any of them
	ending    bool   // the receipt may be the new one
}

func (c *commit) close() {
	c.sync.close()
	for _, fd := range c.dirs {
		unix.Close(fd)
	}
}

// look reads every target once more and refuses what the plan was not made
// from. It writes nothing.
func (c *commit) look() error {
	var err error
	if c.before, err = c.dir.Receipt(); err != nil {
		return err
	}
	c.journal.Same = string(c.before) == string(c.receipt)
	var like content // what is stored besides tells of the files of the install
	for _, w := range c.writes {
		if err := Replaceable(w.Path); err != nil {
			return err
		}
		old, e, err := c.target(w)
		if err != nil {
			return err
		}
		if w.Old != "" && w.Old != w.New {
			c.keep = append(c.keep, old)
		}
		if w.Rel != "" && old.private {
			like = old
		}
		c.journal.Writes = append(c.journal.Writes, e)
	}
	for _, text := range c.variants {
		c.keep = append(c.keep, content{data: text, private: like.private, of: like.of})
	}
	for i := range c.keep {
		c.keep[i].mode = c.narrowest
	}
	return nil
}

func (c *commit) target(w Write) (content, entry, error) {
	e := entry{Rel: w.Rel, Path: w.Path, Old: w.Old, New: w.New, Perm: w.Perm}
	dir, base := split(w.Path)
	fd, ok := c.dirs[dir]
	if !ok {
		var err error
		if fd, err = openDir(dir); err != nil {
			return content{}, e, err
		}
		c.dirs[dir] = fd
	}
	data, err := optional(readAt(fd, base, maxFile))
	if err != nil {
		return content{}, e, &fs.PathError{Op: "read", Path: w.Path, Err: err}
	}
	old := content{data: data}
	var st unix.Stat_t
	have := ""
	if unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		have = Digest(data)
		c.narrowest &= st.Mode
		old.private, old.of = st.Mode&0o004 == 0, ids{int(st.Uid), int(st.Gid)}
		e.Perm, e.Mtime = fs.FileMode(st.Mode&0o7777), st.Mtim.Nano()
	}
	if have != w.Old {
		return old, e, &ChangedError{w.Path}
	}
	return old, e, nil
}

// prepare brings everything the commit needs to the disk: the originals, the
// journal, the new contents beside their targets, and the receipt's text. Only
// when all of it is there may the first target be touched; one wait serves for
// all, because a wait is what a commit's time consists of.
func (c *commit) prepare() error {
	d := c.dir
	if err := d.keepAll(c.keep, &c.sync); err != nil {
		return &CommitError{Path: filepath.Join(d.root, Folder), Step: "save the originals", Err: err}
	}
	if len(c.writes) > 0 {
		c.began = true
		if err := d.putJournal(c.journal, &c.sync); err != nil {
			return &CommitError{Path: filepath.Join(d.root, Folder), Step: "write the journal", Err: err}
		}
	}
	for _, w := range c.writes {
		dir, base := split(w.Path)
		if w.New == "" || w.New == w.Old {
			continue
		}
		if err := stage(c.dirs[dir], base, c.journal.staged(base), w, &c.sync); err != nil {
			return &CommitError{Path: w.Path, Step: "stage", Err: err}
		}
	}
	if err := writeNew(d.fd, receiptName, c.receipt, 0o644, owner(d.fd), &c.sync); err != nil {
		return &CommitError{Path: filepath.Join(d.root, Folder, receiptName), Step: "write", Err: err}
	}
	c.sync.add(d.fd)
	if err := c.sync.wait(); err != nil {
		return &CommitError{Path: d.root, Step: "sync", Err: err}
	}
	return nil
}

func (d *Dir) putJournal(j *journal, s *syncs) error {
	text, err := json.MarshalIndent(j, "", " ")
	if err != nil {
		return err
	}
	return putAt(d.fd, journalName, append(text, '\n'), s)
}

// replaceAll renames every staged file over its target and makes that durable.
func (c *commit) replaceAll() error {
	for _, w := range c.writes {
		if err := c.replace(w); err != nil {
			return err
		}
	}
	for _, fd := range c.dirs {
		c.sync.add(fd)
	}
	if err := c.sync.wait(); err != nil {
		return &CommitError{Path: c.dir.root, Step: "sync", Err: err}
	}
	return nil
}

func (c *commit) replace(w Write) error {
	dir, base := split(w.Path)
	fd := c.dirs[dir]
	if have, err := digestAt(fd, base); err != nil || have != w.Old {
		return errors.Join(err, &ChangedError{w.Path})
	}
	var err error
	switch w.New {
	case w.Old: // only its bytecode goes
	case "":
		err = unlinkat(fd, base)
	default:
		err = renameat(fd, c.journal.staged(base), base)
	}
	if err != nil {
		return &CommitError{Path: w.Path, Step: "rename", Err: err}
	}
	return clearStale(w.Path, w.Stale, &c.sync)
}

// clearStale removes bytecode that would hide the change of a source. Its
// directory is opened without following a link: whoever owns the install could
// put one there that leads root somewhere else. s syncs it: what Python would run
// unchecked must not come back when the power goes.
func clearStale(path string, stale []string, s *syncs) error {
	for _, p := range stale {
		dir, base := split(p)
		fd, err := openDir(dir)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err == nil {
			var st unix.Stat_t
			there := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
			if err = unlinkat(fd, base); there && err == nil {
				s.file(fd)
			} else {
				unix.Close(fd)
			}
		}
		if err != nil {
			return &CommitError{Path: path, Step: "remove stale bytecode " + p, Err: err}
		}
	}
	return nil
}

// finish puts the receipt in place, the point of no return, and takes the
// journal away.
func (c *commit) finish() error {
	d := c.dir
	c.ending = true
	if err := renameat(d.fd, receiptName+suffix, receiptName); err != nil {
		return &CommitError{Path: filepath.Join(d.root, Folder, receiptName), Step: "rename", Err: err}
	}
	if err := fsyncfd(d.fd); err != nil {
		return &CommitError{Path: filepath.Join(d.root, Folder), Step: "sync", Err: err}
	}
	// One that comes back after a power cut, or cannot be removed, is found with
	// its receipt in place and tidied up by the next command.
	unlinkat(d.fd, journalName)
	return nil
}

// abort puts everything back after a failure and says how that went.
func (c *commit) abort(cause error) error {
	ce := &CommitError{Step: "write", Undone: true, Err: cause}
	if !errors.As(cause, &ce) {
		var ch *ChangedError
		if errors.As(cause, &ch) {
			ce.Path = ch.Path
		}
	}
	c.sync.close()
	unlinkat(c.dir.fd, receiptName+suffix) // the next command writes its own in its place
	var err error
	if c.ending {
		err = c.dir.putReceiptBack(c.before)
	}
	if err != nil {
		// files must not go back under a receipt that says they are in place
		ce.Touched, ce.Undone, ce.Journal, ce.Err = true, false, c.began, fmt.Errorf("%w (and then: %v)", ce.Err, err)
		return ce
	}
	if !c.began {
		return ce
	}
	paths := make([]string, len(c.journal.Writes))
	for i, e := range c.journal.Writes {
		paths[i] = e.Path
	}
	out, err := c.dir.rollback(c.journal, paths)
	var stuck stuckError
	ce.Undone, ce.Journal, ce.Left = !errors.As(err, &stuck), err != nil, out.Left
	ce.Touched = !ce.Undone || len(out.Restored) > 0
	if err != nil {
		ce.Err = fmt.Errorf("%w (and then: %v)", ce.Err, err)
	}
	return ce
}

// putReceiptBack undoes the point of no return when the sync right after it
// failed, on the disk as well: the journal may go only after that.
func (d *Dir) putReceiptBack(before []byte) error {
	now, err := d.Receipt()
	if err != nil || string(now) == string(before) {
		return err
	}
	if before == nil {
		err = unlinkat(d.fd, receiptName)
	} else {
		var s syncs
		err = errors.Join(putAt(d.fd, receiptName, before, &s), s.wait())
	}
	return errors.Join(err, d.sync())
}

// Replace changes a single file of an install whose root is gone, and with it
// the place for a journal: the rename alone makes it all or nothing. Bytecode
// goes before it; without it the old source is compiled anew.
func Replace(w Write) error {
	if err := Replaceable(w.Path); err != nil {
		return err
	}
	dir, base := split(w.Path)
	fd, err := openDir(dir)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	old, err := readOld(fd, base)
	if err != nil || old.New != w.Old {
		return errors.Join(err, &ChangedError{w.Path})
	}
	var s syncs
	defer s.close()
	if err := clearStale(w.Path, w.Stale, &s); err != nil {
		return err
	}
	if err := replaceOne(fd, base, w); err != nil {
		return &fs.PathError{Op: "replace", Path: w.Path, Err: err}
	}
	s.add(fd)
	if err := s.wait(); err != nil {
		back := errors.Join(replaceOne(fd, base, old), fsyncfd(fd))
		return &CommitError{Path: w.Path, Step: "sync", Touched: true, Undone: back == nil, Err: err}
	}
	return nil
}

// readOld is how to write a file again as it is now.
func readOld(fd int, base string) (Write, error) {
	data, err := optional(readAt(fd, base, maxFile))
	if err != nil || data == nil {
		return Write{}, err
	}
	var st unix.Stat_t
	err = unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	return Write{New: Digest(data), Data: data, Perm: fs.FileMode(st.Mode & 0o7777), Mtime: time.Unix(0, st.Mtim.Nano())}, err
}

func replaceOne(fd int, base string, w Write) error {
	if w.New == "" {
		return unlinkat(fd, base)
	}
	return stageAndRename(fd, base, (&journal{ID: newID()}).staged(base), w)
}
