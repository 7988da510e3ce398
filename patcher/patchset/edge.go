package patchset

import "slices"

// checkEdges judges the hunks that fit so far. What neither git nor GNU patch
// would do to the file is not done: one of them must take all hunks.
func (f File) checkEdges(src *source, states []HunkState) {
	byGit := true
	var notByGNU []*HunkState
	for i, h := range f.Hunks {
		if states[i].Reason != Fits {
			continue
		}
		git, gnu := src.edges(h, states[i].Line)
		byGit = byGit && git
		if !gnu {
			notByGNU = append(notByGNU, &states[i])
		}
	}
	if byGit {
		return
	}
	for _, s := range notByGNU {
		s.Reason = OffEdge
	}
}

// edges reports whether git apply, and whether GNU patch without fuzz, would take
// the little context of the hunk at that line. A hunk that was made at the start
// or the end of a file has less of it on one side, and each tool has a rule of
// its own for what then fits there only.
func (s *source) edges(h Hunk, line int) (git, gnu bool) {
	before, after := h.context()
	atStart, atEnd := line == 1, line-1+h.OldCount == len(s.starts)-1
	git = (atStart || h.OldLine != 1) && (atEnd || after > 0)
	gnu = (atStart || h.OldLine != 1 || before >= after) && (atEnd || after >= before)
	return git, gnu
}

// context returns the number of lines of context before the first and after the
// last changed line.
func (h Hunk) context() (before, after int) {
	changed := func(l Line) bool { return l.Op != ' ' }
	before = slices.IndexFunc(h.Lines, changed)
	for after < len(h.Lines) && !changed(h.Lines[len(h.Lines)-1-after]) {
		after++
	}
	return before, after
}
