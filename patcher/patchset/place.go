package patchset

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Reason says why a hunk has no place in a text.
type Reason string

const (
	Fits       Reason = ""             // it has one
	NotFound   Reason = "not-found"    // its old lines are nowhere in the text
	Ambiguous  Reason = "ambiguous"    // they are there more than once
	OutOfOrder Reason = "out-of-order" // they are before the end of the hunk before
	OffEdge    Reason = "off-edge"     // they are not where the file starts or ends, as the hunk's short context says
	OutOfScope Reason = "out-of-scope" // they, or what they become, are not in the scope that the hunk names
)

// HunkState is the place of one hunk in a text, or why it has none.
type HunkState struct {
	Hunk   int // 1-based
	Line   int // 1-based line where the old lines are; 0 if NotFound or Ambiguous
	Offset int // Line minus the line of the hunk's header
	Reason Reason
	At     []int // if Ambiguous, some of the lines where the old lines are, ascending
}

// Edit replaces text[Start:End], whole lines, by New. The lines of context are
// not in it, so edits of several sets can meet in one text.
type Edit struct {
	Start, End int
	New        []byte

	Hunk   int // 1-based
	Line   int // 1-based line where the hunk's old lines start, context included
	Offset int // Line minus the line of the hunk's header
}

// HunkError is a hunk without a place.
type HunkError struct {
	Path   string
	Hunk   int // 1-based
	Line   int // the old line in the hunk's header
	Scope  string
	Reason Reason
	At     []int // lines where the old lines are, if they are anywhere
}

func (e *HunkError) Error() string {
	s := fmt.Sprintf("%s: hunk %d (line %d%s): ", e.Path, e.Hunk, e.Line, e.where())
	at := strings.Trim(fmt.Sprint(e.At), "[]")
	switch e.Reason {
	case NotFound:
		return s + "its old lines are not in the file"
	case Ambiguous:
		return s + "its old lines are in the file more than once, at lines " + at
	case OutOfOrder:
		return s + "its old lines are at line " + at + ", which is not behind the hunk before"
	case OffEdge:
		return s + "its old lines are at line " + at + "; its context is cut short as by an end of the file, which is not there"
	}
	return s + "its old lines are at line " + at + "; they, or what they become, are outside of that scope"
}

func (e *HunkError) where() string {
	switch {
	case e.Scope != "":
		return ", " + e.Scope
	case isPython(e.Path):
		return ", module level"
	}
	return ""
}

// PlaceError holds every hunk of a file that has no place, in order. Each is
// also found by errors.As as a *HunkError.
type PlaceError struct {
	Path  string
	Hunks []*HunkError
}

func (e *PlaceError) Error() string {
	lines := make([]string, len(e.Hunks))
	for i, h := range e.Hunks {
		lines[i] = h.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the hunks' errors.
func (e *PlaceError) Unwrap() []error {
	errs := make([]error, len(e.Hunks))
	for i, h := range e.Hunks {
		errs[i] = h
	}
	return errs
}

// Fit returns the state of every hunk in text.
func (f File) Fit(text []byte) []HunkState {
	states, _ := f.locate(text)
	return states
}

// Place returns one edit for every hunk, ascending. A hunk has a place if its
// old lines are in text exactly once, behind the hunk before it, at the edge of
// the file if its context was cut short there, and in the scope it names;
// otherwise all that have none are in a *PlaceError.
//
// Bytes are compared as they are, but for two things that belong to the file
// and not to the change: a byte order mark at its start is skipped, and where
// every line of text ends in CRLF, the lines of a hunk without any CR are taken
// to do so too.
func (f File) Place(text []byte) ([]Edit, error) {
	states, edits := f.locate(text)
	failed := &PlaceError{Path: f.Path}
	for i, s := range states {
		if s.Reason == Fits {
			continue
		}
		h := f.Hunks[i]
		if s.Line > 0 {
			s.At = []int{s.Line}
		}
		failed.Hunks = append(failed.Hunks, &HunkError{f.Path, s.Hunk, h.OldLine, h.Scope, s.Reason, s.At})
	}
	if failed.Hunks != nil {
		return nil, failed
	}
	return edits, nil
}

// Sure returns f for texts of which the table of a Tried set has the digest: its
// hunks are looked for, but the scopes of the text, which take most of the time,
// are not worked out again.
func (f File) Sure() File {
	f.sure = true
	return f
}

// Apply returns text with the change, or Place's error.
func (f File) Apply(text []byte) ([]byte, error) {
	edits, err := f.Place(text)
	if err != nil {
		return nil, err
	}
	return Splice(text, edits)
}

// locate returns the state of every hunk and the edits of those that fit.
func (f File) locate(text []byte) ([]HunkState, []Edit) {
	src := newSource(text, len(f.Hunks))
	states := make([]HunkState, len(f.Hunks))
	end := 0
	for i, h := range f.Hunks {
		states[i] = src.find(h)
		states[i].Hunk = i + 1
		if states[i].Line == 0 {
			continue
		}
		if states[i].Line < end {
			states[i].Reason = OutOfOrder
		}
		end = max(end, states[i].Line+h.OldCount)
	}
	f.checkEdges(src, states)
	if isPython(f.Path) && !f.sure {
		f.checkScopes(src, states)
	}
	return states, f.edits(src, states)
}

// edits returns the edits of the hunks that fit.
func (f File) edits(src *source, states []HunkState) []Edit {
	var out []Edit
	for i, s := range states {
		if s.Reason == Fits {
			out = append(out, src.edit(f.Hunks[i], s))
		}
	}
	return out
}

// checkScopes judges the hunks that fit so far: what they find must be in
// their scope in the text as it is, and what they leave in the text as it will
// be. The second catches an insert at the edge of a function that belongs to it
// by its indentation, and makes every change one that its reverse accepts.
func (f File) checkScopes(src *source, states []HunkState) {
	before := indexScopes(src.text, f.Hunks)
	for i, h := range f.Hunks {
		if s := &states[i]; s.Reason == Fits && !h.inScope(before, s.Line, '-') {
			s.Reason = OutOfScope
		}
	}
	text, err := Splice(src.text, f.edits(src, states))
	if err != nil {
		return // two hunks at one place; Splice says it again to who applies them
	}
	after, delta := indexScopes(text, f.Hunks), 0
	for i, h := range f.Hunks {
		s := &states[i]
		if s.Reason != Fits {
			continue
		}
		if !h.inScope(after, s.Line+delta, '+') {
			s.Reason = OutOfScope
		}
		delta += h.NewCount - h.OldCount
	}
}

// inScope judges one side of a hunk, the one whose own lines have op, at a line.
func (h Hunk) inScope(x scopeIndex, line int, op byte) bool {
	if h.Scope != "" {
		count := h.OldCount
		if op == '+' {
			count = h.NewCount
		}
		return x.within(h.Scope, line, line+count-1)
	}
	for _, r := range h.runs() {
		first, last := line+r.old, line+r.oldEnd-1
		if op == '+' {
			first, last = line+r.new, line+r.newEnd-1
		}
		if first <= last && !x.atModuleLevel(first, last) || first > last && x.splits(first) {
			return false
		}
	}
	return true
}

// run is a stretch of changed lines: offsets from the first line of each side.
type run struct{ old, oldEnd, new, newEnd int }

func (h Hunk) runs() []run {
	var out []run
	old, now, inside := 0, 0, false
	for _, l := range h.Lines {
		if l.Op != ' ' && !inside {
			out = append(out, run{old, old, now, now})
		}
		inside = l.Op != ' '
		if l.Op != '+' {
			old++
		}
		if l.Op != '-' {
			now++
		}
		if inside {
			r := &out[len(out)-1]
			r.oldEnd, r.newEnd = old, now
		}
	}
	return out
}

// edit makes the edit of a hunk at its place, from its first to its last
// changed line.
func (s *source) edit(h Hunk, state HunkState) Edit {
	runs := h.runs()
	first, last := runs[0], runs[len(runs)-1]
	e := Edit{
		Start: s.starts[state.Line-1+first.old], End: s.starts[state.Line-1+last.oldEnd],
		Hunk: state.Hunk, Line: state.Line, Offset: state.Offset,
	}
	crlf := s.converts(h)
	for _, l := range h.New()[first.new:last.newEnd] {
		e.New = appendLine(e.New, l, crlf)
	}
	return e
}

// appendLine appends a line of a hunk in the convention of the file.
func appendLine(out, line []byte, crlf bool) []byte {
	if body, ok := bytes.CutSuffix(line, []byte{'\n'}); ok && crlf {
		return append(append(out, body...), "\r\n"...)
	}
	return append(out, line...)
}

// hasCR reports whether a line of the hunk ends in CRLF.
func (h Hunk) hasCR() bool {
	return slices.ContainsFunc(h.Lines, func(l Line) bool { return bytes.HasSuffix(l.Text, []byte("\r\n")) })
}

// endsFile reports whether a side of the hunk ends in a line without newline,
// which only the end of a file can be.
func (h Hunk) endsFile() bool {
	return slices.ContainsFunc(h.Lines, func(l Line) bool { return !terminated(l.Text) })
}
