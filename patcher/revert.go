package patcher

import (
	"fmt"
	"slices"
	"time"

	"sgpatch/patcher/patchset"
)

// revert plans for the enabled sets without those of the goal.
func (w *planner) revert() error {
	if !w.g.Named {
		w.g.Revert = w.inPlace()
	}
	for _, id := range w.g.Revert {
		if _, ok := w.s.Receipt.Set(id); ok {
			continue
		}
		if _, ok := w.s.Known(id); !ok {
			return &UnknownSetError{id, w.s.ids()}
		}
		if err := w.unrecorded(id); err != nil {
			return err
		}
	}
	out := func(e Enabled) bool { return slices.Contains(w.g.Revert, e.ID) }
	w.next.Sets = slices.DeleteFunc(w.next.Sets, out)
	for _, t := range w.s.Receipt.Files {
		if err := w.withdraw(t, out); err != nil {
			return err
		}
	}
	return nil
}

// inPlace lists what `revert` without a name means: what the receipt has, our
// bytes without a receipt, and the sets whose entries are in the block, for this
// root or for none that is there.
func (w *planner) inPlace() []string {
	var all []string
	for _, v := range w.s.Views() {
		switch {
		case v.Enabled, len(v.Files) > 0 && (v.State == Held || v.State == Partial), w.s.wantsAny(v):
			all = append(all, v.ID)
		case v.State == Foreign:
			w.p.note(w.s.foreignFinding(v))
		case w.s.leftOf(v):
			all = append(all, v.ID)
		}
	}
	return all
}

// wantsAny says whether the block has an entry of the set for this root.
func (s *Site) wantsAny(v SetView) bool { return s.has(v, s.Block.Wants(s.root)) }

// leftOf says whether it has one that no root stands behind.
func (s *Site) leftOf(v SetView) bool { return s.has(v, s.abandoned()) }

func (s *Site) has(v SetView, vars []blockVar) bool {
	k, _ := s.Known(v.ID)
	for _, have := range vars {
		if slices.ContainsFunc(k.Env, func(e patchset.EnvEntry) bool { return e.Name == have.Name }) {
			return true
		}
	}
	return false
}

func (s *Site) foreignFinding(v SetView) Finding {
	k, _ := s.Known(v.ID)
	for _, f := range v.Files {
		if line := lineNaming(s.file(f.Path).data, k); line > 0 {
			return Finding{Code: "foreign", Severity: "warning", Path: s.abs(f.Path), Line: line,
				Message: fmt.Sprintf("%s:%d: the gate is there, but not by sgpatch; it stays as it is", s.abs(f.Path), line),
				Hint:    "put the published file back: pip install --force-reinstall --no-deps sglang==" + orVersion(s.In.Release)}
		}
	}
	path := s.firstFile(k)
	for _, f := range v.Files {
		if f.State == Alien {
			path = s.abs(f.Path)
		}
	}
	return Finding{Code: "foreign", Severity: "warning", Path: path, Message: path + ": " + v.Reason + "; it stays as it is", Hint: "put the published file back: pip install --force-reinstall --no-deps sglang==" + orVersion(s.In.Release)}
}

// unrecorded plans for our bytes of which no receipt speaks (an image layer, a
// copied tree): reversed, and only to a content that the table knows.
func (w *planner) unrecorded(id string) error {
	k, _ := w.s.Known(id)
	v := w.s.View(id)
	if v.State == Foreign {
		f := w.s.foreignFinding(v)
		return &RefusedError{Code: f.Code, Path: f.Path, Line: f.Line, Message: f.Message, Hint: f.Hint}
	}
	undone := false
	for _, f := range v.Files {
		if f.State != Patched {
			continue
		}
		rows := k.PatchedRows(f.Path, f.Have)
		base, err := reverseTo(k, rows[0], w.s.file(f.Path).data)
		if err != nil {
			return &RefusedError{Code: "no-original", Path: w.s.abs(f.Path), Message: fmt.Sprintf("%s: %v", w.s.abs(f.Path), err)}
		}
		if err := w.put(f.Path, base, time.Time{}); err != nil {
			return err
		}
		undone = true
	}
	if !undone && w.g.Named && !w.s.wantsAny(v) && !w.s.leftOf(v) {
		w.p.note(Finding{Code: "not-in-place", Severity: "note", Message: id + " is not in place here; nothing to take out"})
	}
	return nil
}

// withdraw plans one tracked file without the hunks of the sets that go.
func (w *planner) withdraw(t Tracked, out func(Enabled) bool) error {
	leaving, staying, err := w.split(t.Path, out)
	if err != nil {
		return err
	}
	if len(leaving) == 0 {
		w.next.Files = append(w.next.Files, t)
		return nil
	}
	if len(staying) > 0 {
		if err := w.stay(t, staying); err != nil {
			return err
		}
	}
	f := w.s.file(t.Path)
	name := w.s.abs(t.Path)
	switch {
	case f.err != nil:
		return &RefusedError{Code: "unreadable", Path: name, Message: fmt.Sprintf("%s cannot be read: %v", name, f.err)}
	case f.have == t.Want && len(staying) == 0:
		base, err := w.pristine(t)
		if err != nil {
			return err
		}
		return w.put(t.Path, base, mtime(t))
	case f.have == "":
		w.p.note(Finding{Code: "missing", Severity: "note", Path: name, Message: name + " is gone; only the records and the entry are settled"})
		return nil
	case f.have == t.Pristine:
		w.p.note(Finding{Code: "pristine-again", Severity: "note", Path: name, Message: name + " is the published content again; it stays as it is"})
		return nil
	}
	return w.undo(t, leaving)
}

func mtime(t Tracked) time.Time {
	if t.Mtime == 0 {
		return time.Time{}
	}
	return time.Unix(0, t.Mtime)
}

// split sorts the sets that touch a path into those that go and those that stay.
func (w *planner) split(path string, out func(Enabled) bool) (leaving, staying []placed, err error) {
	for _, e := range w.s.Receipt.Sets {
		d, ok, err := w.s.touches(e, path)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case !ok:
		case out(e):
			leaving = append(leaving, placed{e.ID, d})
		default:
			staying = append(staying, placed{e.ID, d})
		}
	}
	return leaving, staying, nil
}

// stay records what a file shall be for the sets that remain.
func (w *planner) stay(t Tracked, sets []placed) error {
	base, err := w.pristineAny(t)
	if err != nil {
		return err
	}
	want, err := compose(base, sets)
	if err != nil {
		return w.clash(t.Path, sets, err)
	}
	next := t
	next.Want, next.Sets = patchset.DigestOf(want), setsOf(sets)
	w.next.Files = append(w.next.Files, next)
	if w.s.file(t.Path).have == t.Want {
		return w.put(t.Path, want, time.Time{})
	}
	return nil
}

// pristineAny is pristine, also where the file itself has moved on.
func (w *planner) pristineAny(t Tracked) ([]byte, error) {
	if f := w.s.file(t.Path); f.have == t.Pristine {
		return f.data, nil
	}
	return w.pristine(t)
}

// undo takes our hunks out of a content that others edited, if they are found
// exactly and uniquely. A content without a trace of them is somebody's new
// installation and stays.
func (w *planner) undo(t Tracked, sets []placed) error {
	f, name := w.s.file(t.Path), w.s.abs(t.Path)
	if f.have == t.Want { // other sets stay on it; stay has planned that
		return nil
	}
	data, touched := f.data, false
	for _, p := range sets {
		e, _ := w.s.Receipt.Set(p.set)
		if !traces(data, p.file, e.Env) {
			continue
		}
		got, err := p.file.Reverse().Apply(data)
		if err != nil {
			return &RefusedError{Code: "drift", Path: name, Message: fmt.Sprintf("%s was edited inside our hunks after it was patched; they cannot be taken out exactly: %v", name, err), Hint: "put the published file back (pip install --force-reinstall --no-deps sglang==" + orVersion(w.s.In.Release) + "), then: sgpatch revert" + w.s.Flags()}
		}
		data, touched = got, true
	}
	if !touched {
		w.p.note(Finding{Code: "reinstalled", Severity: "note", Path: name, Message: name + " is a new content since the last apply; it stays as it is"})
		return nil
	}
	w.p.note(Finding{Code: "edited", Severity: "warning", Path: name, Message: name + " was edited after it was patched; only our hunks are taken out, the other changes stay"})
	return w.put(t.Path, data, time.Time{})
}
