package patchset

import (
	"bytes"
	"index/suffixarray"
	"slices"
)

// source is a text in which hunks are looked for.
type source struct {
	text   []byte
	crlf   bool  // every line end is CRLF, and there is one
	starts []int // offset of each line, and of the end of the text

	// hay is a newline and the text behind its byte order mark. With a newline
	// before it too, a hunk's old lines are found at line starts only.
	hay   []byte
	skip  int                // length of the byte order mark
	index *suffixarray.Index // of hay; nil for few hunks
}

// manyHunks is the number from which on an index costs less than to read the
// text for every hunk. It takes time in proportion to the text to build and
// lookups that hardly depend on it, whatever the text is.
const manyHunks = 32

func newSource(text []byte, hunks int) *source {
	s := &source{text: text}
	if bytes.HasPrefix(text, []byte(bom)) {
		s.skip = len(bom)
	}
	body := text[s.skip:]
	ends := bytes.Count(body, []byte{'\n'})
	s.crlf = ends > 0 && bytes.Count(body, []byte("\r\n")) == ends
	s.starts = make([]int, 0, ends+2)
	s.starts = append(s.starts, s.skip)
	for line := range bytes.Lines(body) {
		s.starts = append(s.starts, s.starts[len(s.starts)-1]+len(line))
	}
	s.hay = append([]byte{'\n'}, body...)
	if hunks >= manyHunks {
		s.index = suffixarray.New(s.hay)
	}
	return s
}

// converts reports whether the hunk's lines stand for lines with CRLF. One that
// has a CR itself says exactly what it means; to convert the rest of it would
// be a guess, and could not be undone.
func (s *source) converts(h Hunk) bool { return s.crlf && !h.hasCR() }

// find returns the place of the hunk's old lines, or that there is none.
func (s *source) find(h Hunk) HunkState {
	at := s.occurrences(h)
	switch {
	case len(at) == 0:
		return HunkState{Reason: NotFound}
	case len(at) > 1:
		for i := range at {
			at[i] = s.lineOf(at[i])
		}
		return HunkState{Reason: Ambiguous, At: at}
	}
	line := s.lineOf(at[0])
	return HunkState{Line: line, Offset: line - h.OldLine}
}

func (s *source) lineOf(offset int) int {
	i, _ := slices.BinarySearch(s.starts, offset)
	return i + 1
}

// mostPlaces limits the places that are named of an ambiguous hunk.
const mostPlaces = 8

// occurrences returns offsets in text, ascending; all if there are no more
// than one.
func (s *source) occurrences(h Hunk) []int {
	needle, crlf := []byte{'\n'}, s.converts(h)
	oldEnds := false
	for _, l := range h.Old() {
		needle = appendLine(needle, l, crlf)
		oldEnds = !terminated(l)
	}
	if crlf && !slices.ContainsFunc(h.Old(), terminated) && slices.ContainsFunc(h.New(), terminated) {
		// The hunk would bring in line ends without having seen one. If the
		// file had been mixed before a change took its last LF away, taking
		// the change back would bring in a CRLF that never was.
		return nil
	}
	atEnd := len(s.hay) - len(needle)
	var at []int
	switch {
	case oldEnds:
		if bytes.HasSuffix(s.hay, needle) {
			at = []int{atEnd}
		}
	case s.index != nil:
		at = s.index.Lookup(needle, mostPlaces)
		slices.Sort(at)
	default:
		at = search(s.hay, needle)
	}
	if h.endsFile() && len(at) == 1 && at[0] != atEnd {
		return nil
	}
	for i := range at {
		at[i] += s.skip
	}
	return at
}

func search(hay, needle []byte) []int {
	var at []int
	for from := 0; len(at) < mostPlaces; {
		i := bytes.Index(hay[from:], needle)
		if i < 0 {
			break
		}
		at = append(at, from+i)
		from += i + 1
	}
	return at
}
