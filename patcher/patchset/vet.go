package patchset

import (
	"bytes"
	"fmt"
	"strings"
)

// vet looks at every line by itself. A line that starts with anything but
// blank, +, -, \ or @ is never part of a hunk, so what it says about the file
// can be judged without knowing where the hunks end.
func vet(name string, text []byte) error {
	switch {
	case len(text) == 0:
		return &DataError{File: name, Reason: "the file is empty"}
	case len(text) > maxDiff:
		return &DataError{File: name, Reason: fmt.Sprintf("larger than %d MiB", maxDiff>>20)}
	}
	n, hunks := 0, 0
	for line := range bytes.Lines(text) {
		n++
		reason, hint := vetLine(line)
		if line[0] == '@' {
			if hunks++; hunks > maxHunks {
				reason = fmt.Sprintf("more than %d hunks", maxHunks)
			}
		}
		if reason != "" {
			return &DataError{File: name, Line: n, Reason: reason, Hint: hint}
		}
	}
	return nil
}

// vetLine returns what is wrong with a line, and what to do about it.
func vetLine(line []byte) (reason, hint string) {
	body, ok := bytes.CutSuffix(line, []byte{'\n'})
	switch {
	case len(line) > maxLine:
		return fmt.Sprintf("the line is longer than %d KiB", maxLine>>10), ""
	case !ok:
		return "the last line has no newline", "the diff was cut off, or an editor stripped it"
	case bytes.IndexByte(line, 0) >= 0:
		return "a NUL byte", "a set changes text files only"
	case len(body) == 0:
		return "an empty line", "an empty line of context is one blank; some editors strip it"
	}
	switch body[0] {
	case ' ', '-', '+':
		return vetBody(body)
	case '\\':
		if string(body) != noNewline {
			return "unknown marker " + clip(body), "the only one is: " + noNewline
		}
		return "", ""
	}
	if bytes.IndexByte(body, '\r') >= 0 {
		return "a carriage return in a header line", "the diff's own lines end in LF; a CRLF file has its CR in the hunk lines only"
	}
	return vetHeader(string(body))
}

// vetBody allows a CR only as part of a line end: Python and editors end a
// line at a lone one, the tools that apply diffs do not.
func vetBody(body []byte) (reason, hint string) {
	if i := bytes.IndexByte(body, '\r'); i >= 0 && i != len(body)-1 {
		return "a carriage return inside a line", "what follows it is another line for Python, but not for patch tools"
	}
	return "", ""
}

const onlyChange = "a set changes the contents of existing regular files only"

// refused are lines of diffs that do something else.
var refused = []struct{ prefix, reason string }{
	{"new file mode ", "creates a file"},
	{"deleted file mode ", "deletes a file"},
	{"old mode ", "changes a file's mode"},
	{"new mode ", "changes a file's mode"},
	{"rename ", "renames a file"},
	{"copy ", "copies a file"},
	{"similarity index ", "renames or copies a file"},
	{"dissimilarity index ", "rewrites a file"},
	{"Binary files ", "a binary patch"},
	{"GIT binary patch", "a binary patch"},
	{"Only in ", "names a file that one side does not have"},
}

func vetHeader(line string) (reason, hint string) {
	switch {
	case strings.HasPrefix(line, "@@"):
		if !isHunkHeader(line) {
			return "not a hunk header: " + clip([]byte(line)), "the form is: @@ -LINE,COUNT +LINE,COUNT @@ SCOPE"
		}
		return "", ""
	case strings.HasPrefix(line, "diff --git "), strings.HasPrefix(line, "index "):
		return "", ""
	}
	for _, r := range refused {
		if strings.HasPrefix(line, r.prefix) {
			return r.reason, onlyChange
		}
	}
	return "text that belongs to no hunk: " + clip([]byte(line)), "a diff holds file headers and hunks, nothing else"
}

// isHunkHeader keeps from go-diff the headers on which it fails without saying
// where. Whether git would write this one is seen when it is printed.
func isHunkHeader(line string) bool {
	rest, ok := strings.CutPrefix(line, hunkMark)
	if !ok {
		return false
	}
	old, rest, ok := strings.Cut(rest, " +")
	if !ok || !isRange(old) {
		return false
	}
	now, scope, ok := strings.Cut(rest, " @@")
	return ok && isRange(now) && (scope == "" || scope[0] == ' ')
}

func isRange(s string) bool {
	line, count, ok := strings.Cut(s, ",")
	return isNumber(line) && (!ok || isNumber(count))
}

// isNumber takes up to nine digits, which fit go-diff's 32 bits.
func isNumber(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return 0 < len(s) && len(s) < 10
}
