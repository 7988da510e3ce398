package block

import (
	"bytes"
	"iter"
)

var bom = []byte("\xef\xbb\xbf")

// line is one physical line, as Python counts them: a lone carriage return
// ends one as well.
type line struct {
	number      int // from 1
	start, next int // in the text; a byte order mark belongs to no line
	body        []byte
	eol         string // "\n", "\r\n", "\r", or "" at the end of the text
}

func lines(text []byte) iter.Seq[line] {
	return func(yield func(line) bool) {
		at := len(text) - len(bytes.TrimPrefix(text, bom))
		for number := 1; at < len(text); number++ {
			l := lineAt(text, at)
			l.number = number
			if !yield(l) {
				return
			}
			at = l.next
		}
	}
}

// lineAt is the line that starts at an offset, without its number.
func lineAt(text []byte, at int) line {
	i := bytes.IndexAny(text[at:], "\r\n")
	if i < 0 {
		return line{start: at, next: len(text), body: text[at:]}
	}
	end := at + i
	size := eolSize(text, end)
	return line{start: at, next: end + size, body: text[at:end], eol: string(text[end : end+size])}
}

// eolSize is the length of the line end at an offset, 0 if there is none.
func eolSize(text []byte, at int) int {
	switch rest := text[at:]; {
	case bytes.HasPrefix(rest, []byte("\r\n")):
		return 2
	case len(rest) > 0 && (rest[0] == '\n' || rest[0] == '\r'):
		return 1
	default:
		return 0
	}
}

// eolOf is the line end that a text uses: that of its first line.
func eolOf(text []byte) string {
	if eol := lineAt(text, 0).eol; eol != "" {
		return eol
	}
	return "\n"
}

// numberAt is the number of the line that holds an offset.
func numberAt(text []byte, at int) int {
	number := 1
	for l := range lines(text[:at]) {
		if l.eol != "" {
			number++
		}
	}
	return number
}
