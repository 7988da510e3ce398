package block

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	openingStart  = "# >>> sgpatch >>> written by sgpatch"
	openingEnd    = "; to take it out: sgpatch revert"
	closingMarker = "# <<< sgpatch <<<"

	rootLine  = "# root "
	setLine   = `    __import__("os").environ.setdefault(`
	rootsPart = ")  # roots"

	tryLine    = "try:"
	exceptLine = "except Exception:"
	passLine   = "    pass"

	// Without a plain statement at the end, an indented line, an else or a
	// finally below the block would become a part of it, and what is a syntax
	// error would turn into something that runs.
	lastLine = "pass  # ends the try"
)

// frame are the lines between the markers that carry no data.
var frame = []string{tryLine, exceptLine, passLine, lastLine}

// opening is the first marker line. What it says of the file is needed when
// the block is taken out.
func opening(made, ended bool) string {
	what := ""
	switch {
	case made && ended:
		what = ", which made this file and ended the line above"
	case made:
		what = ", which made this file"
	case ended:
		what = ", which ended the line above"
	}
	return openingStart + what + openingEnd
}

// opened reads an opening marker.
func opened(body string) (made, ended, ok bool) {
	for _, made := range []bool{false, true} {
		for _, ended := range []bool{false, true} {
			if body == opening(made, ended) {
				return made, ended, true
			}
		}
	}
	return false, false, false
}

// render writes b, which is in normal form and has entries.
func (p place) render(b Block) string {
	return strings.Join(bodies(b, p.ended), p.eol) + p.eol
}

func bodies(b Block, ended bool) []string {
	roots := b.Roots()
	out := []string{opening(b.Made, ended)}
	for i, root := range roots {
		out = append(out, rootLine+strconv.Itoa(i+1)+" "+literal(root))
	}
	for _, e := range b.Entries {
		set := setLine + literal(e.Name) + ", " + literal(e.Value) + rootsPart
		for _, root := range e.Roots {
			i, _ := slices.BinarySearch(roots, root)
			set += " " + strconv.Itoa(i+1)
		}
		// A try of its own for each: a value that the locale cannot encode
		// must not keep the others from being set.
		out = append(out, tryLine, set, exceptLine, passLine)
	}
	return append(out, lastLine, closingMarker)
}

// parse reads the block that stands at p into p.block. It only picks the data
// out of the lines; that nothing else is different is proved by writing it anew.
func (p *place) parse(text []byte, number int) error {
	var roots []string
	at := number - 1
	for l := range lines(text[p.start:p.end]) {
		at++
		body, ok := string(l.body), true
		switch {
		case l.eol != p.eol:
			return damaged(at, "its line ends are not all the same")
		case strings.HasPrefix(body, rootLine):
			roots, ok = readRoot(roots, body)
		case strings.HasPrefix(body, setLine):
			ok = p.readEntry(roots, body)
		case at > number && p.start+l.next < p.end:
			ok = slices.Contains(frame, body)
		}
		if !ok {
			return damaged(at, "this line was edited: %q", body)
		}
	}
	b, err := p.block.normal()
	if err != nil {
		return damaged(number, "%v", err)
	}
	p.block = b
	return p.compare(text, number)
}

// compare demands that the block at p is, byte for byte, what Set writes.
func (p *place) compare(text []byte, number int) error {
	if len(p.block.Entries) == 0 {
		return damaged(number, "it has no entries")
	}
	want := bodies(p.block, p.ended)
	i := 0
	for l := range lines(text[p.start:p.end]) {
		if i == len(want) || string(l.body) != want[i] {
			return damaged(number+i, "this line was edited: %q", l.body)
		}
		i++
	}
	if i < len(want) {
		return damaged(number+i, "a line is missing: %q", want[i])
	}
	return nil
}

func readRoot(roots []string, body string) ([]string, bool) {
	rest, ok := strings.CutPrefix(body, fmt.Sprintf("%s%d ", rootLine, len(roots)+1))
	root, rest, fine := cutLiteral(rest)
	return append(roots, root), ok && fine && rest == ""
}

func (p *place) readEntry(roots []string, body string) bool {
	var e Entry
	name, rest, ok := cutLiteral(body[len(setLine):])
	rest, comma := strings.CutPrefix(rest, ", ")
	value, rest, fine := cutLiteral(rest)
	rest, end := strings.CutPrefix(rest, rootsPart)
	if !ok || !comma || !fine || !end {
		return false
	}
	e.Name, e.Value = name, value
	for _, number := range strings.Fields(rest) {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > len(roots) {
			return false
		}
		e.Roots = append(e.Roots, roots[n-1])
	}
	p.block.Entries = append(p.block.Entries, e)
	return true
}
