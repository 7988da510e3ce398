package block

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// literal writes s as a Python string literal in printable ASCII. Python's
// os.environ, which encodes with surrogateescape, makes the bytes of s of it
// again: a byte that is no UTF-8 is a lone surrogate, U+DC80 to U+DCFF.
func literal(s string) string {
	var out strings.Builder
	out.WriteByte('"')
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&out, `\udc%02x`, s[i])
		} else {
			writeRune(&out, r, s[:i])
		}
		i += size
	}
	out.WriteByte('"')
	return out.String()
}

func writeRune(out *strings.Builder, r rune, before string) {
	switch {
	case r == '"' || r == '\\':
		out.WriteByte('\\')
		out.WriteRune(r)
	case r == '\n':
		out.WriteString(`\n`)
	case r == '\r':
		out.WriteString(`\r`)
	case r == '\t':
		out.WriteString(`\t`)
	case special(r, before):
		fmt.Fprintf(out, `\x%02x`, r)
	case r < utf8.RuneSelf:
		out.WriteRune(r)
	case r <= 0xffff:
		fmt.Fprintf(out, `\u%04x`, r)
	default:
		fmt.Fprintf(out, `\U%08x`, r)
	}
}

// special reports characters below 0x80 that must not stand as themselves:
// control characters, what could look like a marker, and what would make a
// coding line of a root line, which may be the second line of the file
// (/opt/coding=latin-1/lib is a lawful path).
func special(r rune, before string) bool {
	switch {
	case r < ' ' || r == 0x7f || r == '<' || r == '>':
		return true
	default:
		return (r == ':' || r == '=') && strings.HasSuffix(before, "coding")
	}
}

// cutLiteral reads the literal at the start of s. It takes more than literal
// writes (who needs it strict writes the value again and compares) but no
// escape that literal does not know.
func cutLiteral(s string) (value, rest string, ok bool) {
	s, ok = strings.CutPrefix(s, `"`)
	var out []byte
	for ok && s != "" {
		switch s[0] {
		case '"':
			return string(out), s[1:], true
		case '\\':
			out, s, ok = cutEscape(out, s[1:])
		default:
			out, s = append(out, s[0]), s[1:]
		}
	}
	return "", "", false
}

// escapes are the letters that follow a backslash and how many hex digits
// follow them.
var escapes = map[byte]int{'x': 2, 'u': 4, 'U': 8}

var short = map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', '"': '"', '\\': '\\'}

func cutEscape(out []byte, s string) ([]byte, string, bool) {
	if s == "" {
		return nil, "", false
	}
	if c, ok := short[s[0]]; ok {
		return append(out, c), s[1:], true
	}
	digits := escapes[s[0]]
	if digits == 0 || len(s) < 1+digits {
		return nil, "", false
	}
	n, err := strconv.ParseUint(s[1:1+digits], 16, 32)
	r, s := rune(n), s[1+digits:]
	switch {
	case err != nil:
		return nil, "", false
	case 0xdc80 <= r && r <= 0xdcff:
		return append(out, byte(r)), s, true
	default:
		return utf8.AppendRune(out, r), s, utf8.ValidRune(r)
	}
}
