package main

import (
	"fmt"
	"strings"

	dmp "github.com/sergi/go-diff/diffmatchpatch"

	"sgpatch/patcher"
)

// planDiff shows what a plan changes, as a unified diff for people.
func planDiff(p *patcher.Plan) string {
	var b strings.Builder
	for _, w := range p.Writes {
		if w.Old != w.New {
			from, to := p.Names[w.Path], p.Names[w.Path]
			if w.Old == "" {
				from = "/dev/null"
			}
			if w.New == "" {
				to = "/dev/null"
			}
			b.WriteString(unified(from, to, p.Before[w.Path], w.Data))
		}
	}
	return b.String()
}

// unified compares two contents line by line. Bytes are widened to code points
// first, because the library stumbles over anything that is not UTF-8.
func unified(from, to string, before, after []byte) string {
	d := dmp.New()
	a, b, lines := d.DiffLinesToRunes(widen(before), widen(after))
	ops := d.DiffCharsToLines(d.DiffMainRunes(a, b, false), lines)
	var all []line
	for _, op := range ops {
		for text := range strings.Lines(op.Text) {
			all = append(all, line{" +-"[(int(op.Type)+3)%3], narrow(text)})
		}
	}
	return hunks(from, to, all)
}

type line struct {
	op   byte
	text string
}

func widen(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		s.WriteRune(rune(c))
	}
	return s.String()
}

func narrow(s string) string {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		b = append(b, byte(r))
	}
	return string(b)
}

const around = 3 // lines of context

// hunks prints the changed lines with their context.
func hunks(from, to string, all []line) string {
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", from, to)
	oldAt, newAt := 1, 1
	for i := 0; i < len(all); {
		if all[i].op == ' ' {
			oldAt, newAt, i = oldAt+1, newAt+1, i+1
			continue
		}
		start := max(0, i-around)
		end, quiet := i, 0
		for end < len(all) && quiet <= 2*around {
			if all[end].op == ' ' {
				quiet++
			} else {
				quiet = 0
			}
			end++
		}
		end -= max(0, quiet-around)
		lead := i - start
		nOld, nNew := write(&b, all[start:end], oldAt-lead, newAt-lead)
		oldAt, newAt, i = oldAt-lead+nOld, newAt-lead+nNew, end
	}
	return b.String()
}

func write(b *strings.Builder, part []line, oldAt, newAt int) (nOld, nNew int) {
	for _, l := range part {
		if l.op != '+' {
			nOld++
		}
		if l.op != '-' {
			nNew++
		}
	}
	if nOld == 0 { // an empty side is numbered by the line before it
		oldAt--
	}
	if nNew == 0 {
		newAt--
	}
	fmt.Fprintf(b, "@@ -%d,%d +%d,%d @@\n", oldAt, nOld, newAt, nNew)
	for _, l := range part {
		b.WriteByte(l.op)
		b.WriteString(l.text)
		if !strings.HasSuffix(l.text, "\n") {
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
	return nOld, nNew
}
