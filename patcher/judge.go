package patcher

import (
	"bytes"
	"slices"
	"strings"

	"sgpatch/patcher/internal/txn"
	"sgpatch/patcher/patchset"
)

// State says how a set stands in an install.
type State string

// The states of a set.
const (
	Absent      State = "absent"      // not in place; it would fit
	Held        State = "held"        // in place, whole
	Partial     State = "partial"     // some of it in place
	Drifted     State = "drifted"     // in place, and edited since
	Undone      State = "undone"      // a reinstall took it away
	Foreign     State = "foreign"     // the gate is there, but not by us
	Unsupported State = "unsupported" // no variant fits
)

// FileState says how one file of a set stands.
type FileState string

// The states of a file.
const (
	Pristine FileState = "pristine" // without our hunks, as before
	Patched  FileState = "patched"  // with them
	Replaced FileState = "replaced" // another content without any trace of ours
	Edited   FileState = "edited"   // our hunks whole, other lines changed
	Damaged  FileState = "damaged"  // our hunks changed
	Missing  FileState = "missing"  // no such file
	Alien    FileState = "foreign"  // names our variable, not by us
	Unfit    FileState = "unfit"    // the hunks do not fit
	Fits     FileState = "fits"     // not in the release table; the hunks fit
)

// FileView is one file of a set with its three contents.
type FileView struct {
	Path                 string
	State                FileState
	Pristine, Want, Have patchset.Digest
	Hunks                []patchset.HunkState
	Err                  error // it could not be read
}

// SetView is how one set stands in an install.
type SetView struct {
	ID, Version, Title string
	Variant            string
	State              State
	Listed             bool
	Enabled            bool   // the receipt says that it is in place
	Release            string // the release whose contents these are, if listed
	Reason             string // why unsupported
	Files              []FileView
	Env                []EnvValue // what it wants in the block
	NoEnv              bool
	InBlock            bool // and all of it is there
}

// View judges one set. It reads files and writes nothing.
func (s *Site) View(id string) SetView {
	if e, ok := s.Receipt.Set(id); ok {
		return s.viewEnabled(e)
	}
	k, _ := s.Known(id)
	v := SetView{ID: k.ID, Version: k.Version, Title: k.Title, State: Absent}
	for _, e := range k.Env {
		if !e.Optional {
			v.Env = append(v.Env, EnvValue{e.Name, e.Value, e.Switch})
		}
	}
	if len(k.Variants) > 0 {
		s.viewContents(k, &v)
	}
	return v
}

// Views judges every set that is known or in place, in the order of their ids.
func (s *Site) Views() []SetView {
	var ids []string
	for _, k := range s.known {
		ids = append(ids, k.ID)
	}
	for _, e := range s.Receipt.Sets {
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	var all []SetView
	for _, id := range slices.Compact(ids) {
		all = append(all, s.View(id))
	}
	return all
}

func (s *Site) viewEnabled(e Enabled) SetView {
	k, _ := s.Known(e.ID)
	v := SetView{ID: e.ID, Version: e.Version, Title: k.Title, Variant: e.Variant, Listed: e.Listed, Enabled: true, Env: e.Env, NoEnv: e.NoEnv}
	for _, t := range s.Receipt.Files {
		if slices.Contains(t.Sets, e.ID) {
			v.Files = append(v.Files, s.viewTracked(e, t))
		}
	}
	v.InBlock = e.NoEnv || s.inBlock(e.Env)
	v.State = stateOf(v)
	return v
}

func (s *Site) inBlock(want []EnvValue) bool {
	have := s.Block.Wants(s.root)
	if s.Receipt.Root != s.root { // an image layer, or a tree that was moved, under its old name
		have = append(have, s.Block.Wants(s.Receipt.Root)...)
	}
	for _, w := range want {
		if !slices.ContainsFunc(have, func(h blockVar) bool { return h.Name == w.Name && h.Value == w.Value }) {
			return false
		}
	}
	return true
}

// stateOf sums up the files, and for a set of entries alone the block.
func stateOf(v SetView) State {
	count := map[FileState]int{}
	for _, f := range v.Files {
		count[f.State]++
	}
	gone := count[Pristine] + count[Replaced] + count[Missing]
	switch {
	case count[Edited]+count[Damaged] > 0:
		return Drifted
	case gone > 0 && gone == len(v.Files):
		return Undone
	case gone > 0:
		return Partial
	case !v.InBlock && len(v.Files) == 0:
		return Undone
	case !v.InBlock:
		return Partial
	}
	return Held
}

// viewTracked judges a file that the receipt knows. The diff is needed only for
// a content that is neither of the two known ones, and to show the hunks.
func (s *Site) viewTracked(e Enabled, t Tracked) FileView {
	f := s.file(t.Path)
	v := FileView{Path: t.Path, Pristine: t.Pristine, Want: t.Want, Have: f.have, Err: f.err}
	switch {
	case f.err != nil:
		v.State = Damaged
	case f.have == "":
		v.State = Missing
	case f.have == t.Want:
		v.State = Patched
	case f.have == t.Pristine:
		v.State = Pristine
	}
	if v.State == Missing || v.State == Pristine || (v.State == Patched && (s.Quick || s.Brief)) {
		return v
	}
	d, _, err := s.touches(e, t.Path)
	if err != nil {
		v.Err = err
	}
	if v.State == "" {
		v.State = edited(f.data, d, e.Env)
	}
	if v.State != Replaced {
		v.Hunks = d.Reverse().Fit(f.data)
	}
	return v
}

// edited judges a content that is neither the pristine nor the patched one.
func edited(content []byte, d patchset.File, env []EnvValue) FileState {
	if !traces(content, d, env) {
		return Replaced
	}
	if _, err := d.Reverse().Place(content); err != nil {
		return Damaged
	}
	return Edited
}

// traces says whether a content still has something of our hunks: one of the
// set's switches by name, a whole hunk, or at least half of the lines that only
// we bring. A single line, as "logger.warning(", stands in other releases as well.
func traces(content []byte, d patchset.File, env []EnvValue) bool {
	for _, e := range env {
		if e.Switch && bytes.Contains(content, []byte(e.Name)) {
			return true
		}
	}
	return stands(content, d) || halfOf(content, d)
}

// stands says whether a hunk is in a text as we leave it. Of one that only takes
// lines away nothing is left to be found.
func stands(text []byte, d patchset.File) bool {
	brings := func(l patchset.Line) bool { return l.Op == '+' && len(bytes.TrimSpace(l.Text)) > 0 }
	for i, h := range d.Reverse().Fit(text) {
		if h.Reason == patchset.Fits && slices.ContainsFunc(d.Hunks[i].Lines, brings) {
			return true
		}
	}
	return false
}

func halfOf(content []byte, d patchset.File) bool {
	ours := map[string]bool{}
	for _, op := range []string{"+", "- "} { // what is there without us is no trace
		for _, h := range d.Hunks {
			for _, l := range h.Lines {
				if text := strings.TrimSpace(string(l.Text)); text != "" && strings.IndexByte(op, l.Op) >= 0 {
					ours[text] = l.Op == '+'
				}
			}
		}
	}
	all, found := 0, 0
	for _, mine := range ours {
		if mine {
			all++
		}
	}
	for line := range bytes.Lines(content) {
		if text := strings.TrimSpace(string(line)); ours[text] {
			found, ours[text] = found+1, false
		}
	}
	return found > 0 && 2*found >= all
}

// viewContents judges a set of which no receipt speaks, by the contents alone.
func (s *Site) viewContents(k patchset.Set, v *SetView) {
	have := map[string]patchset.Digest{}
	for _, p := range k.Paths() {
		have[p] = s.file(p).have
	}
	if m := match(k, have); m.release != "" {
		v.Release, v.Variant, v.Listed = m.release, m.variant, true
		v.State = m.state
		if s.Pending != "" && v.State == Held && !s.inBlock(v.Env) {
			v.State = Partial // a first apply came as far as the code
		}
		for _, r := range m.rows {
			st := Pristine
			if have[r.Path] == r.Patched {
				st = Patched
			}
			v.Files = append(v.Files, FileView{Path: r.Path, State: st, Pristine: r.Pristine, Want: r.Patched, Have: have[r.Path], Hunks: s.fit(k, m.variant, r.Path, st)})
		}
		return
	}
	s.viewUnlisted(k, v)
}

func (s *Site) fit(k patchset.Set, variant, path string, st FileState) []patchset.HunkState {
	w, _ := k.Variant(variant)
	f, ok := fileOf(w.Files, path)
	if !ok || (s.Brief && st != Fits) {
		return nil
	}
	if st == Patched {
		f = f.Reverse()
	}
	return f.Fit(s.file(path).data)
}

// found is a release of the table whose contents these are.
type found struct {
	release, variant string
	state            State // Absent, Held or Partial
	rows             []patchset.Row
}

// match looks for one release all of whose rows agree with the contents, each
// either pristine or patched.
func match(k patchset.Set, have map[string]patchset.Digest) found {
	rows := k.Rows
	best := found{}
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Release == rows[0].Release {
			n++
		}
		if st, ok := agree(rows[:n], have); ok && (best.release == "" || st != Partial) {
			best = found{rows[0].Release, rows[0].Variant, st, rows[:n]}
		}
		rows = rows[n:]
	}
	return best
}

func agree(rows []patchset.Row, have map[string]patchset.Digest) (State, bool) {
	patched := 0
	for _, r := range rows {
		switch have[r.Path] {
		case r.Patched:
			patched++
		case r.Pristine:
		default:
			return "", false
		}
	}
	switch patched {
	case 0:
		return Absent, true
	case len(rows):
		return Held, true
	}
	return Partial, true
}

func (s *Site) viewUnlisted(k patchset.Set, v *SetView) {
	if reason, bad := k.UnsupportedReason(s.In.Release); bad {
		v.State, v.Reason = Unsupported, reason
	}
	foreign, ours, fit := false, false, s.fitting(k)
	for _, p := range k.Paths() {
		f := s.file(p)
		fv := FileView{Path: p, State: Unfit, Have: f.have, Err: f.err}
		rows := k.PatchedRows(p, f.have)
		switch {
		case len(rows) > 0: // published bytes with our hunks, beside others
			fv.State, ours = Patched, true
			fv.Pristine, fv.Want = rows[0].Pristine, rows[0].Patched
			fv.Hunks = s.fit(k, rows[0].Variant, p, Patched)
		case f.have == "" && f.err == nil:
			fv.State = Missing
		case names(f.data, k) || marked(f.data, k, p):
			fv.State, foreign = Alien, true
		case len(fit) > 0:
			fv.State = Fits
			fv.Hunks = s.fit(k, fit[0].Name, p, Fits)
		default:
			fv.Hunks = s.nearest(k, p)
		}
		v.Files = append(v.Files, fv)
	}
	switch {
	case foreign:
		v.State, v.Reason = Foreign, "the text names the set's variable or has its lines, but it is not a published text with a variant of ours"
	case ours:
		v.State, v.Reason = Partial, "some of its files are as we leave them, and the others are not"
	case v.State == Unsupported:
	case len(fit) == 0:
		v.State, v.Reason = Unsupported, "the contents are in no release table and no variant fits them exactly"
	case len(fit) == 1:
		v.Variant = fit[0].Name
	}
}

// nearest shows, of the variant with the most fitting hunks, where they stand.
func (s *Site) nearest(k patchset.Set, path string) []patchset.HunkState {
	var best []patchset.HunkState
	most := -1
	for _, w := range k.Variants {
		f, ok := fileOf(w.Files, path)
		if !ok {
			continue
		}
		hunks, n := f.Fit(s.file(path).data), 0
		for _, h := range hunks {
			if h.Reason == "" {
				n++
			}
		}
		if n > most {
			best, most = hunks, n
		}
	}
	return best
}

// fitting returns the variants all of whose hunks fit the contents exactly.
func (s *Site) fitting(k patchset.Set) []patchset.Variant {
	var all []patchset.Variant
	for _, w := range k.Variants {
		ok := true
		for _, f := range w.Files {
			_, err := f.Place(s.file(f.Path).data)
			ok = ok && err == nil && s.file(f.Path).have != ""
		}
		if ok {
			all = append(all, w)
		}
	}
	return all
}

// marked says whether a hunk of a variant stands in a text as we leave it.
func marked(text []byte, k patchset.Set, path string) bool {
	for _, v := range k.Variants {
		if f, ok := v.File(path); ok && stands(text, f) {
			return true
		}
	}
	return false
}

// names says whether a text names one of the set's variables.
func names(text []byte, k patchset.Set) bool {
	return slices.ContainsFunc(k.Env, func(e patchset.EnvEntry) bool { return e.Switch && bytes.Contains(text, []byte(e.Name)) })
}

// Added lists the longer names that a set's hunks bring into a file.
func (s *Site) Added(v SetView, path string) []string {
	files := []patchset.File(nil)
	if e, ok := s.Receipt.Set(v.ID); ok {
		files, _ = s.diff(e)
	} else if k, ok := s.Known(v.ID); ok {
		w, _ := k.Variant(v.Variant)
		files = w.Files
	}
	f, _ := fileOf(files, path)
	return added(f)
}

func added(f patchset.File) []string {
	var all []string
	for _, h := range f.Hunks {
		for _, l := range h.Lines {
			if code := strings.TrimSpace(string(l.Text)); l.Op == '+' && !strings.HasPrefix(code, "#") {
				all = append(all, strings.FieldsFunc(code, notInName)...)
			}
		}
	}
	return slices.DeleteFunc(all, func(name string) bool { return len(name) < 12 })
}

func notInName(r rune) bool {
	return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// Lacks says whether one of these names is missing in a compiled file, which
// keeps names as they are: then it is hardly compiled from our text. Without a
// name to look for nothing vouches for it.
func Lacks(pyc string, names []string) bool {
	if len(names) == 0 {
		return true
	}
	data, err := txn.ReadFile(pyc, maxSource)
	return err == nil && slices.ContainsFunc(names, func(n string) bool { return !bytes.Contains(data, []byte(n)) })
}
