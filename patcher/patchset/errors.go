package patchset

import "strconv"

// DataError is a defect in the data of a patch set. Nothing on a host can mend
// it; the author of the set must.
type DataError struct {
	File   string // the name given to Parse, or "<set>/v3/x.diff" from a load
	Line   int    // 1-based; 0 if the whole file is meant
	Reason string // what is wrong
	Hint   string // the way out, "" if the reason says it all
}

func (e *DataError) Error() string {
	s := e.File
	if e.Line > 0 {
		s += ":" + strconv.Itoa(e.Line)
	}
	s += ": " + e.Reason
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}
