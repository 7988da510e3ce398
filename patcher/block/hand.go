package block

import (
	"bytes"
	"errors"
	"slices"
	"strings"
)

// Line is a line that sets a variable and is not ours.
type Line struct {
	Number int // from 1
	Name   string
	Text   string // without space around it, in the file's own bytes
}

// Hand returns the lines of a sitecustomize.py that set one of the names,
// outside our block. It is a rule of thumb and never fails: a string literal
// that is exactly the name counts (so does a keyword argument), unless the
// place where it stands plainly only reads the variable or takes it away.
func Hand(text []byte, names []string) []Line {
	s := read(text)
	at, _ := find(text) // a damaged block is not ours, its lines are reported
	var out []Line
	number, counted := 1, 0
	for i, t := range s.tokens {
		name, ok := s.names(i)
		if !ok || !slices.Contains(names, name) || at.start <= t.start && t.start < at.end {
			continue
		}
		number, counted = number+numberAt(text[counted:], t.start-counted)-1, t.start
		if !reported(out, number, name) {
			out = append(out, Line{number, name, textAt(text, t.start)})
		}
	}
	return out
}

// reported tells whether the line is among the last of out for the same name.
func reported(out []Line, number int, name string) bool {
	for i := len(out) - 1; i >= 0 && out[i].Number == number; i-- {
		if out[i].Name == name {
			return true
		}
	}
	return false
}

// textAt is the physical line around an offset.
func textAt(text []byte, at int) string {
	start := bytes.LastIndexAny(text[:at], "\r\n") + 1
	return strings.TrimSpace(string(lineAt(bytes.TrimPrefix(text[start:], bom), 0).body))
}

// scan returns all tokens of text. Where one does not end, it goes on with the
// line after its beginning.
func scan(text []byte) []token {
	l := &lexer{text: text, at: len(text) - len(bytes.TrimPrefix(text, bom))}
	var out []token
	for {
		t, err := l.next()
		var broken *broken
		switch {
		case errors.As(err, &broken):
			out = append(out, token{kind: tokNewline, start: broken.at, end: broken.at})
			*l = lexer{text: text, at: lineAt(text, broken.at).next}
		case t.kind == tokEnd:
			return out
		default:
			out = append(out, t)
		}
	}
}

// Beside returns the first line with one of the names in it that is neither in the
// block nor a comment, and which name; 0 if there is none.
func Beside(text []byte, names []string) (number int, name string) {
	at, _ := find(text)
	for l := range lines(text) {
		if l.start >= at.start && l.start < at.end || bytes.HasPrefix(bytes.TrimSpace(l.body), []byte("#")) {
			continue
		}
		for _, name := range names {
			if bytes.Contains(l.body, []byte(name)) {
				return l.number, name
			}
		}
	}
	return 0, ""
}
