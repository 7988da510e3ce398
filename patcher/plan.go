package patcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"

	"sgpatch/patcher/install"
	"sgpatch/patcher/internal/txn"
	"sgpatch/patcher/patchset"
)

// Goal is what a command wants of an install.
type Goal struct {
	Command string   // "apply" or "revert", for the journal and the receipt
	Apply   []string // sets to put in place
	Revert  []string // sets to take out
	Named   bool     // the operator named them

	Env        map[string]string // other values for entries
	NoEnv      bool              // code only
	Bare       []string          // of Apply: of these the code only
	ListedOnly bool              // refuse contents that are not in the release table
	Check      bool              // prove listed contents, too
	Prove      func(Proof) error // the behaviour check
	Told       string            // --sitecustomize

	Reason, Result string
	Trial          string // this is a part of an experiment; "" ends one
}

// Proof is what a behaviour check is asked about: a set's files before and
// after its hunks, by their paths from the root.
type Proof struct {
	Set              patchset.Set
	Root             string
	Pristine, Staged map[string][]byte
}

// RefusedError says why a plan cannot be made. Nothing was changed.
type RefusedError struct {
	Code    string // as "drift", "foreign", "no-fit"
	Path    string
	Line    int
	Message string
	Hint    string // the next command to type
}

func (e *RefusedError) Error() string { return e.Message }

// UnknownSetError says that no set has this id.
type UnknownSetError struct {
	ID    string
	Known []string
}

func (e *UnknownSetError) Error() string {
	return fmt.Sprintf("there is no patch set %q; there are: %s", e.ID, strings.Join(e.Known, ", "))
}

// UnknownEnvError says that --env names a variable that no set of the command has.
type UnknownEnvError struct{ Name string }

func (e *UnknownEnvError) Error() string {
	return fmt.Sprintf("--env %s: none of these sets has such an entry", e.Name)
}

// Finding is one thing a command has to say besides its result.
type Finding struct {
	Code     string `json:"code"`
	Severity string `json:"severity"` // "error", "warning" or "note"
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`
	Path     string `json:"path,omitempty"`
	Line     int    `json:"line,omitempty"`
}

// Plan is how to get from what is on disk to a goal. It is a value: making it
// reads and changes nothing.
type Plan struct {
	Writes   []txn.Write
	Receipt  *Receipt
	Keep     [][]byte // variants to store beside the replaced contents
	Findings []Finding
	Before   map[string][]byte // the contents that Writes replace, by real path
	Names    map[string]string // by real path, as the operator knows the file
	Litter   []string          // staged files of a commit that a power cut ended
	moved    bool              // the receipt says something new
}

// Empty says that nothing has to be done.
func (p *Plan) Empty() bool { return p.settled() && len(p.Litter) == 0 }

// settled says that there is nothing to commit.
func (p *Plan) settled() bool { return len(p.Writes) == 0 && !p.moved }

// Changed lists the files whose bytes change, as absolute paths: of a source
// that stays as it is, the bytecode that goes because it would run instead.
func (p *Plan) Changed() []string {
	all := []string{}
	for _, w := range p.Writes {
		if w.Old != w.New {
			all = append(all, p.Names[w.Path])
		} else {
			all = append(all, w.Stale...)
		}
	}
	return all
}

func (p *Plan) note(f Finding) { p.Findings = append(p.Findings, f) }

// planner is the state of making one plan.
type planner struct {
	s    *Site
	g    Goal
	p    *Plan
	next *Receipt
	base map[string][]byte // contents without any of our hunks
	take map[string][]placed
}

// placed is an enabled set's hunks for one path.
type placed struct {
	set  string
	file patchset.File
}

// Plan works out what a goal needs. The error is a *RefusedError, *DamagedError,
// *UnknownSetError, *UnknownEnvError or *install.LinkError.
func (s *Site) Plan(g Goal) (*Plan, error) {
	if t := s.Receipt.Trial; g.Trial != "" && t != "" && t != g.Trial {
		return nil, &RefusedError{Code: "trial", Path: s.In.Root, Message: "there is a trial already that is not at its end, or was killed: " + t, Hint: "wait for it, or: sgpatch revert" + s.Flags()}
	}
	w := &planner{s: s, g: g, base: map[string][]byte{}, take: map[string][]placed{}}
	w.p = &Plan{Before: map[string][]byte{}, Names: map[string]string{}}
	next := *s.Receipt
	next.Sets, next.Files, next.Trial = slices.Clone(s.Receipt.Sets), nil, s.trialAfter(g)
	w.next, w.p.Receipt = &next, &next
	var err error
	if len(g.Apply) > 0 {
		err = w.apply()
	} else {
		err = w.revert()
	}
	if err == nil {
		err = w.entry()
	}
	if err == nil {
		err = w.feasible()
	}
	if err != nil {
		return nil, err
	}
	w.finish()
	if err := next.check(); err != nil && len(g.Apply) > 0 {
		return nil, &RefusedError{Code: "records", Path: s.In.Root, Message: fmt.Sprintf("%q: its records could not be read again: %v", s.In.Root, err), Hint: "give the environment a path without control characters"}
	}
	return w.p, nil
}

// trialAfter is what the receipt says of a trial: what is about other sets alone
// does not end it.
func (s *Site) trialAfter(g Goal) string {
	about := slices.Concat(g.Apply, g.Revert)
	if g.Trial != "" || len(about) == 0 {
		return g.Trial
	}
	sets, _, _ := strings.Cut(strings.TrimPrefix(s.Receipt.Trial, "of "), ",")
	for _, id := range strings.Fields(sets) {
		if !slices.Contains(about, id) {
			return s.Receipt.Trial
		}
	}
	return ""
}

// finish stamps the receipt if anything moved.
func (w *planner) finish() {
	r, s := w.next, w.s
	if w.p.Litter = s.litter(); len(w.p.Litter) > 0 {
		w.p.note(Finding{Code: "swept", Severity: "note", Path: w.p.Litter[0], Message: "files that a commit had staged when the power went are removed: " + strings.Join(w.p.Litter, ", ")})
	}
	sort.Slice(r.Files, func(i, j int) bool { return r.Files[i].Path < r.Files[j].Path })
	r.Schema, r.Root = 1, s.root
	before := *s.Receipt
	before.Last, before.Schema, before.Root = r.Last, 1, s.root
	w.p.moved = string(before.text()) != string(r.text())
	if !w.p.moved && len(w.p.Writes) == 0 {
		return
	}
	ids := append(slices.Clone(w.g.Apply), w.g.Revert...)
	r.Last = Last{Command: w.g.Command, Time: time.Now().UTC().Truncate(time.Second), Sets: ids, Reason: w.g.Reason, Result: w.g.Result}
}

// litter finds staged files beside everything that a commit here can have been about.
func (s *Site) litter() []string {
	if _, err := os.Lstat(filepath.Join(s.In.Root, txn.Folder)); err != nil {
		return nil
	}
	var paths []string
	for _, k := range s.known {
		paths = append(paths, k.Paths()...)
	}
	for _, t := range s.Receipt.Files {
		paths = append(paths, t.Path)
	}
	var targets []string
	for _, p := range paths {
		if real, err := install.Resolve(s.abs(p), s.root); err == nil {
			targets = append(targets, real)
		}
	}
	if s.entryAt != "" {
		targets = append(targets, s.entryAt)
	}
	return txn.Staged(targets)
}

func (s *Site) ids() []string {
	var all []string
	for _, k := range s.known {
		all = append(all, k.ID)
	}
	return all
}

// Base returns a file of the install without any of our hunks.
func (w *planner) baseOf(path string) ([]byte, error) {
	if b, ok := w.base[path]; ok {
		return b, nil
	}
	b, err := w.findBase(path)
	if err == nil {
		w.base[path] = b
	}
	return b, err
}

func (w *planner) findBase(path string) ([]byte, error) {
	s, f := w.s, w.s.file(path)
	if f.err != nil {
		return nil, &RefusedError{Code: "unreadable", Path: s.abs(path), Message: fmt.Sprintf("%s cannot be read: %v", s.abs(path), f.err)}
	}
	t, tracked := s.Receipt.File(path)
	switch {
	case !tracked || f.have == t.Pristine:
		return f.data, nil
	case f.have == t.Want:
		return w.pristine(t)
	case f.have == "":
		return nil, w.drift(path, "is gone")
	}
	for _, e := range s.Receipt.Sets {
		d, ok, err := s.touches(e, path)
		if err != nil {
			return nil, err
		}
		if ok && traces(f.data, d, e.Env) {
			return nil, w.drift(path, "was edited after it was patched")
		}
	}
	w.p.note(Finding{Code: "reinstalled", Severity: "note", Path: s.abs(path), Message: s.abs(path) + " is a new content since the last apply; it is patched afresh"})
	return f.data, nil
}

func (w *planner) drift(path, how string) error {
	return &RefusedError{Code: "drift", Path: w.s.abs(path), Message: fmt.Sprintf("%s %s", w.s.abs(path), how), Hint: "sgpatch status" + w.s.Flags() + "; then take the patch out with: sgpatch revert" + w.s.Flags()}
}

// Flags repeats how the operator named this install, for hints that can be
// pasted into a shell.
func (s *Site) Flags() string {
	flags := ""
	if s.In.Python != "" {
		flags = " --python " + Quote(s.In.Python)
	}
	if s.In.Python == "" || s.In.Told {
		flags += " --root " + Quote(s.In.Root)
	}
	return flags
}

// Quote writes a path so that a shell reads it as one word.
func Quote(path string) string {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+:@%,="
	if path != "" && strings.Trim(path, plain) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// pristine fetches the content before us: kept, or by reversing our hunks.
func (w *planner) pristine(t Tracked) ([]byte, error) {
	data, err := txn.Object(w.s.In.Root, string(t.Pristine))
	if err == nil {
		return data, nil
	}
	back := w.s.file(t.Path).data
	for _, e := range slices.Backward(w.s.Receipt.Sets) {
		d, ok, derr := w.s.touches(e, t.Path)
		if derr != nil {
			return nil, derr
		}
		if !ok {
			continue
		}
		if back, derr = d.Reverse().Apply(back); derr != nil {
			return nil, &DamagedError{w.s.abs(t.Path), fmt.Errorf("the saved original cannot be used (%v) and our hunks cannot be reversed: %w", err, derr)}
		}
	}
	if patchset.DigestOf(back) != t.Pristine {
		return nil, &DamagedError{w.s.abs(t.Path), fmt.Errorf("the saved original cannot be used (%v) and reversing our hunks does not give it", err)}
	}
	return back, nil
}

// put plans one file of the install.
func (w *planner) put(path string, want []byte, mtime time.Time) error {
	f := w.s.file(path)
	real, err := install.Resolve(w.s.abs(path), w.s.root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	wr := txn.Write{Rel: path, Path: real, Old: string(f.have), New: string(patchset.DigestOf(want)), Data: want, Mtime: mtime}
	if wr.Old == wr.New {
		if wr.Stale = w.hiding(path); len(wr.Stale) == 0 {
			return nil
		}
	} else {
		wr.Stale = w.s.bytecode(path, real)
	}
	return w.add(wr, w.s.abs(path), f.data)
}

func (w *planner) add(wr txn.Write, name string, before []byte) (err error) {
	if wr.Stale, err = w.s.realNames(wr.Stale); err != nil {
		return err
	}
	w.p.Writes = append(w.p.Writes, wr)
	w.p.Before[wr.Path], w.p.Names[wr.Path] = before, name
	return nil
}

// bytecode lists the compiled files of a source, under every name it has.
func (s *Site) bytecode(path, real string) []string {
	prefix := s.In.Answer.PycachePrefix
	if prefix == "" {
		prefix = s.Receipt.Python.PycachePrefix
	}
	all := install.Bytecode(s.abs(path), prefix)
	if real != s.abs(path) {
		all = append(all, install.Bytecode(real, prefix)...)
	}
	return all
}

// hiding lists bytecode that Python would run although it is not from this
// source: without a look at it, or with a header that fits and our names amiss.
func (w *planner) hiding(path string) []string {
	var names []string
	for _, p := range w.take[path] {
		names = append(names, added(p.file)...)
	}
	return hides(w.s.abs(path), w.s.bytecode(path, w.s.abs(path)), names)
}

func hides(source string, compiled, names []string) []string {
	var all []string
	for _, pyc := range compiled {
		use, err := install.HowUsed(pyc, source, nil)
		if err == nil && (use == install.Unchecked || (use == install.Checked && Lacks(pyc, names))) {
			all = append(all, pyc)
		}
	}
	return all
}

// feasible looks for what would stop the commit, before it starts.
func (w *planner) feasible() error {
	for _, wr := range w.p.Writes {
		err := txn.Replaceable(wr.Path)
		if err == nil {
			continue
		}
		hint := w.wayOut(err, wr)
		return &RefusedError{Code: "not-permitted", Path: w.p.Names[wr.Path], Message: fmt.Sprintf("%s cannot be replaced: %v", w.p.Names[wr.Path], err), Hint: hint}
	}
	return nil
}

// wayOut is what to do about a file that cannot be replaced.
func (w *planner) wayOut(err error, wr txn.Write) string {
	again := "sgpatch " + w.g.Command + w.s.Flags()
	switch {
	case errors.Is(err, syscall.EROFS):
		return "mount it writable, then: " + again
	case errors.Is(err, fs.ErrNotExist):
		return "name a file in a directory that exists"
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 && wr.Rel == "" && w.g.Command == "apply":
		return "sudo " + again + "; or the code alone, and the variable in the launch script: " + again + " --no-env"
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return "sudo " + again
	}
	return "make it replaceable (unmount what lies on it, chattr -i), then: " + again
}

func (s *Site) inside(real string) bool {
	rel, err := filepath.Rel(s.root, real)
	return err == nil && filepath.IsLocal(rel)
}
