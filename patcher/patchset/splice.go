package patchset

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
)

// ClashError says that two edits cannot both be made: they replace the same
// bytes, or insert at the same point, where no order is right.
type ClashError struct {
	I, J int // indexes into the edits given to Splice
	A, B Edit
}

func (e *ClashError) Error() string {
	return fmt.Sprintf("two changes meet: hunk %d at line %d and hunk %d at line %d", e.A.Hunk, e.A.Line, e.B.Hunk, e.B.Line)
}

// Splice returns text with the edits, which may come from several sets and in
// any order, or a *ClashError. It panics if an edit was not made for this text
// and leads out of it.
func Splice(text []byte, edits []Edit) ([]byte, error) {
	order := make([]int, len(edits))
	size := len(text)
	for i, e := range edits {
		order[i] = i
		size += len(e.New) - (e.End - e.Start)
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := edits[i], edits[j]
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
	})
	for k := 1; k < len(order); k++ {
		i, j := order[k-1], order[k]
		if a, b := edits[i], edits[j]; clash(a, b) {
			return nil, &ClashError{I: i, J: j, A: a, B: b}
		}
	}
	out, done := make([]byte, 0, max(size, 0)), 0
	for _, i := range order {
		e := edits[i]
		out = append(append(out, text[done:e.Start]...), e.New...)
		done = e.End
	}
	return append(out, text[done:]...), nil
}

// clash reports whether b, which starts and ends no earlier than a, is in its way.
func clash(a, b Edit) bool {
	switch {
	case b.Start < a.End:
		return true
	case a.Start == a.End && b.Start == b.End && a.Start == b.Start:
		return true
	}
	// a ends the file without a newline: what follows would run into its last line.
	return len(a.New) > 0 && !bytes.HasSuffix(a.New, []byte{'\n'}) && len(b.New) > 0
}
