package patcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"sgpatch/patcher/block"
	"sgpatch/patcher/install"
	"sgpatch/patcher/internal/txn"
	"sgpatch/patcher/patchset"
)

// Outcome is what a converge did or, dry, would do.
type Outcome struct {
	Site     *Site // as it is afterwards
	Plan     *Plan
	Findings []Finding
	Changed  []string // absolute paths whose bytes changed
}

// RecoverError says that an interrupted commit could not be settled. Its journal
// stays.
type RecoverError struct {
	Root string
	Err  error
}

func (e *RecoverError) Error() string {
	return "an interrupted commit cannot be put right: " + e.Err.Error()
}
func (e *RecoverError) Unwrap() error { return e.Err }

// Hint is what to do about it: what the disk refused can be tried again, a
// journal that may not be followed cannot.
func (e *RecoverError) Hint() string {
	var no syscall.Errno
	if errors.As(e.Err, &no) {
		return "make that possible (room, permissions, a writable mount), then run it again"
	}
	return "look into " + Quote(filepath.Join(e.Root, txn.Folder)) + "; put the published files back (pip install --force-reinstall --no-deps sglang==VERSION), then remove journal.json there"
}

// Options of Converge.
type Options struct {
	Dry  bool
	Wait time.Duration // for the lock
}

// Converge brings an install to a goal, all of it or nothing. Everything is
// judged before the lock is taken, so that a refusal leaves no trace; under the
// lock it is judged again unless nothing has moved, and the commit compares
// every target once more: what is done was true when it was done.
func Converge(ctx context.Context, s *Site, g Goal, o Options) (Outcome, error) {
	plan, err := s.Plan(g)
	if err != nil && s.Pending == "" {
		return Outcome{Site: s}, err
	}
	if err == nil && (o.Dry || (plan.Empty() && s.Pending == "")) {
		return s.outcome(plan, s.interrupted()), nil
	}
	if o.Dry {
		return Outcome{Site: s}, err
	}
	if err := ctx.Err(); err != nil {
		return Outcome{Site: s}, err
	}
	if _, serr := os.Stat(s.In.Root); errors.Is(serr, fs.ErrNotExist) || (s.In.Gone && !s.recorded) {
		return s.withoutRecords(ctx, g, o)
	}
	dir, err := s.lock(ctx, o.Wait)
	if err != nil {
		return Outcome{Site: s}, err
	}
	defer dir.Close()
	unlock, err := s.lockEntries(ctx, g.Told, o.Wait)
	if err != nil {
		return Outcome{Site: s}, err
	}
	defer unlock()
	go s.profiles() // while the disk is waited for; they are asked for behind the commit
	return s.locked(dir, g, plan)
}

func (s *Site) lock(ctx context.Context, wait time.Duration) (*txn.Dir, error) {
	real, err := install.Trusted(s.In.Root)
	if err != nil {
		return nil, err
	}
	if real != s.root {
		return nil, &ChangedError{Path: s.In.Root}
	}
	dir, err := txn.Lock(ctx, real, wait)
	if errors.Is(err, txn.ErrNoFile) {
		err = &DamagedError{filepath.Join(s.In.Root, txn.Folder), err}
	}
	return dir, err
}

// lockEntries locks the sitecustomize, which other roots may share, and the one
// that the receipt names, which this root may have to leave. They are locked in
// one order everywhere, so that no two commands wait for each other.
func (s *Site) lockEntries(ctx context.Context, told string, wait time.Duration) (unlock func(), err error) {
	byDir := map[string]string{}
	for _, real := range []string{s.entryAt, s.Receipt.Entry.Real} {
		if real == "" || s.mayTouch(real, told) != nil {
			continue // the plan refuses it if it is needed
		}
		if _, err := os.Stat(filepath.Dir(real)); err == nil {
			byDir[filepath.Dir(real)] = real
		}
	}
	var held []func()
	unlock = func() {
		for _, u := range held {
			u()
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		u, err := txn.LockBeside(ctx, byDir[dir], wait)
		if err != nil {
			unlock()
			return nil, err
		}
		held = append(held, u)
	}
	return unlock, nil
}

func (s *Site) locked(dir *txn.Dir, g Goal, plan *Plan) (Outcome, error) {
	notes, restored, err := s.recover(dir, g.Told)
	if err != nil && s.Pending == "" {
		return Outcome{Site: s}, err // there was no journal to be seen: it could not be looked for
	}
	if err != nil {
		return Outcome{Site: s, Findings: notes}, &RecoverError{s.In.Root, err}
	}
	for try := 0; ; try++ {
		now := s
		if plan == nil || try > 0 || s.Pending != "" || s.Moved() || s.neighbours() != s.near {
			if now, err = openOnce(s.In, s.known); err != nil {
				return Outcome{Site: s, Findings: notes}, err
			}
			now.Brief = s.Brief
			if plan, err = now.Plan(g); err != nil {
				return Outcome{Site: now, Findings: notes}, err
			}
		}
		if err := dir.Sweep(plan.Litter); err != nil {
			return Outcome{Site: now, Findings: notes}, err
		}
		if plan.settled() {
			return now.outcome(plan, notes, restored...), nil
		}
		if err := now.mayWrite(dir.Owner(), plan); err != nil {
			return Outcome{Site: now, Findings: notes}, err
		}
		err = now.commit(dir, plan, g)
		if movedOnly(err) && try < 5 {
			continue // somebody else edited it between the look and the commit
		}
		if err != nil {
			return Outcome{Site: now, Findings: notes}, err
		}
		return now.after(plan).outcome(plan, notes, restored...), nil
	}
}

// movedOnly says that a commit met another content than its plan's and left
// nothing behind: a next one would write its journal over that of this one.
func movedOnly(err error) bool {
	var moved *ChangedError
	var half *CommitError
	return errors.As(err, &moved) && !(errors.As(err, &half) && half.Journal)
}

// after is the site once a plan is carried out. It is not read back: what cannot
// fail then cannot be reported as something that was not done.
func (s *Site) after(plan *Plan) *Site {
	n := *s
	n.Receipt, n.Pending, n.recorded, n.stamp = plan.Receipt, "", true, txn.Stamp(s.In.Root)
	n.files = maps.Clone(s.files)
	for _, w := range plan.Writes {
		data := w.Data
		if w.New == "" {
			data = nil
		}
		switch {
		case w.Rel != "":
			n.files[w.Rel] = &file{path: w.Rel, data: data, have: patchset.Digest(w.New)}
		case w.Path == s.entryAt:
			n.Entry = data
			n.Block, n.BlockErr = block.Get(data)
		}
	}
	return &n
}

func (s *Site) commit(dir *txn.Dir, plan *Plan, g Goal) error {
	return dir.Commit(g.Command, plan.Writes, plan.Keep, plan.Receipt.text())
}

// interrupted tells a dry run that its plan starts from half a commit.
func (s *Site) interrupted() []Finding {
	if s.Pending == "" {
		return nil
	}
	return []Finding{{Code: "interrupted", Severity: "warning", Path: s.In.Root, Message: "a command (" + s.Pending + ") was interrupted here; it is put right first, and the plan may then be another one"}}
}

// outcome is what a plan did, after files that a recovery had put back.
func (s *Site) outcome(plan *Plan, notes []Finding, restored ...string) Outcome {
	changed := plan.Changed()
	for _, path := range restored {
		if name, ok := plan.Names[path]; ok {
			path = name
		}
		if !slices.Contains(changed, path) {
			changed = append(changed, path)
		}
	}
	return Outcome{Site: s, Plan: plan, Findings: append(slices.Clone(notes), plan.Findings...), Changed: changed}
}

// recover settles what an interrupted command left, and returns the files that
// it put back.
func (s *Site) recover(dir *txn.Dir, told string) (notes []Finding, restored []string, err error) {
	r, err := dir.Recover(func(rel, path, old string) error {
		return errors.Join(s.mayRecover(rel, path, told), s.mayPutBack(dir.Owner(), rel, path, old))
	})
	if err != nil || r.Command == "" {
		return nil, nil, err
	}
	how := "put back"
	if r.Finished {
		how = "complete, and tidied up"
	}
	notes = []Finding{{Code: "recovered", Severity: "note", Message: fmt.Sprintf("an interrupted %s was found and %s", r.Command, how)}}
	for _, p := range r.Left {
		notes = append(notes, Finding{Code: "recovery-left", Severity: "warning", Path: p, Message: p + " is neither the old nor the new content of the interrupted command; it stays as it is"})
	}
	return notes, r.Restored, nil
}

// mayRecover says whether the journal of this root may name a file.
func (s *Site) mayRecover(rel, path, told string) error {
	if rel == "" {
		return s.mayTouch(path, told)
	}
	if !ofInstall(rel) {
		return errors.New("that is not a path of this install")
	}
	real, err := install.Resolve(s.abs(rel), s.root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if real != path {
		return fmt.Errorf("%s leads to %s", s.abs(rel), real)
	}
	return nil
}

// withoutRecords takes out the entry of a root that is gone, or of which only
// the block still speaks; no records are begun for that.
func (s *Site) withoutRecords(ctx context.Context, g Goal, o Options) (Outcome, error) {
	unlock, err := s.lockEntries(ctx, g.Told, o.Wait)
	if err != nil {
		return Outcome{Site: s}, err
	}
	defer unlock()
	now, err := openOnce(s.In, s.known) // who stands behind the block counts as of now
	if err != nil {
		return Outcome{Site: s}, err
	}
	plan, err := now.Plan(g)
	if err != nil {
		return Outcome{Site: now}, err
	}
	for _, w := range plan.Writes {
		if err := txn.Replace(w); err != nil {
			return Outcome{Site: now}, err
		}
	}
	return now.after(plan).outcome(plan, nil), nil
}

// HasRecords says whether there is anything for Purge to take away.
func (s *Site) HasRecords() bool {
	_, err := os.Lstat(filepath.Join(s.In.Root, txn.Folder))
	return !errors.Is(err, fs.ErrNotExist)
}

// Purge takes the records of an install away, if nothing is in place any more.
func (s *Site) Purge(ctx context.Context, wait time.Duration) error {
	if len(s.Receipt.Sets) > 0 {
		return &RefusedError{Code: "in-place", Path: s.In.Root, Message: "sets are still in place; their records stay", Hint: "sgpatch revert --all --purge" + s.Flags()}
	}
	dir, err := s.lock(ctx, wait)
	if err != nil {
		return err
	}
	defer dir.Close()
	if s.Moved() {
		return &RefusedError{Code: "moved", Path: s.In.Root, Message: "another command changed the records meanwhile; they stay", Hint: "sgpatch status" + s.Flags()}
	}
	return dir.Purge()
}

// Orphan names the root of an install that an interpreter had before somebody
// uninstalled SGLang: its own site directory with records, or a root in the
// block of its sitecustomize that is its own or does not exist any more.
func Orphan(a install.Answer) string {
	for _, dir := range append(slices.Clone(a.Purelib), a.UserSite) {
		if dir == "" {
			continue
		}
		if receipt, journal, err := txn.Read(dir); err == nil && (receipt != nil || journal != nil) {
			return dir
		}
	}
	text, err := txn.ReadFile(a.Site, maxSource)
	if err != nil {
		return ""
	}
	b, err := block.Get(text)
	if err != nil {
		return ""
	}
	for _, root := range b.Roots() {
		_, err := os.Stat(root)
		if errors.Is(err, fs.ErrNotExist) || slices.Contains(a.Purelib, root) || root == a.UserSite || ofPython(root, a.Prefix) {
			return root
		}
	}
	return ""
}

// Names says whether the block of a sitecustomize wants something for a root.
func Names(site, root string) bool {
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return false
	}
	text, err := txn.ReadFile(site, maxSource)
	if err != nil {
		return false
	}
	b, err := block.Get(text)
	return err == nil && slices.Contains(b.Roots(), real)
}

func ofPython(root, prefix string) bool {
	text, _, err := txn.Read(root)
	if err != nil || text == nil {
		return false
	}
	r, err := parseReceipt(root, text)
	return err == nil && r.Python.Prefix == prefix
}

// Record appends one line to a history that only its owner may read.
func Record(path string, line []byte) error { return txn.Append(path, line) }

// Scratch makes an empty directory for a child process of this owner, and gives
// the way to remove it.
func Scratch(uid, gid int) (dir string, remove func(), err error) { return txn.Scratch(uid, gid) }

// python is what a receipt records of the interpreter that was asked.
func (s *Site) python() Python {
	if !s.In.Asked {
		return s.Receipt.Python
	}
	a := s.In.Answer
	p := Python{Path: s.In.Python, Executable: a.Executable, Prefix: a.Prefix, Version: a.Version, Tag: a.Tag, Magic: fmt.Sprintf("%x", a.Magic), PycachePrefix: a.PycachePrefix, Extensions: a.Extensions, SysPath: a.Path}
	if st, err := os.Stat(a.Executable); err == nil {
		p.Size, p.Mtime = st.Size(), st.ModTime().UnixNano()
	}
	return p
}

// pristineTime is the modification time of a file before us, for its return.
func (s *Site) pristineTime(t Tracked) int64 {
	if f := s.file(t.Path); f.have == t.Pristine {
		return f.mtime
	}
	if was, ok := s.Receipt.File(t.Path); ok && was.Pristine == t.Pristine {
		return was.Mtime
	}
	return 0
}

// What a commit can end with; see package txn.
type (
	BusyError    = txn.BusyError
	CommitError  = txn.CommitError
	ChangedError = txn.ChangedError
)

// Link makes a symbolic link; an existing file is an error.
func Link(target, path string) error { return txn.Link(target, path) }
