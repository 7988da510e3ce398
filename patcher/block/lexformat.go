package block

// maxFormat is how deep f-strings may stand in each other; Python's own limit.
const maxFormat = 150

// field reads a replacement field of an f-string, from its brace to the
// closing one: an expression, which since Python 3.12 may hold any token, the
// same quotes included, and perhaps a format after a colon.
func (l *lexer) field(s str, start int) error {
	if l.format++; l.format > maxFormat {
		return fail(start, "f-strings too deep in each other")
	}
	defer func(depth int) { l.depth = depth; l.format-- }(l.depth)
	l.at++
	l.depth++
	for base := l.depth; ; {
		if err := l.skip(); err != nil {
			return err
		}
		if l.at == len(l.text) || l.depth < base {
			return fail(start, "a field of an f-string does not end")
		}
		switch c := l.text[l.at]; {
		case c == '}' && l.depth == base:
			l.at++
			return nil
		case c == ':' && l.depth == base:
			l.at++
			return l.spec(s, start)
		}
		t, err := l.scan()
		if err != nil {
			return err
		}
		l.keep(t)
	}
}

// keep queues a token that was found in a field, in the order of the text: what
// stands inside an f-string follows it.
func (l *lexer) keep(t token) {
	i := len(l.queue)
	for i > 0 && l.queue[i-1].start > t.start {
		i--
	}
	l.queue = append(l.queue, token{})
	copy(l.queue[i+1:], l.queue[i:])
	l.queue[i] = t
}

// spec reads the format of a field, up to its closing brace and over it. A
// closing quote is not looked for: Python before 3.12 and after agree that the
// brace comes first.
func (l *lexer) spec(s str, start int) error {
	for l.at < len(l.text) {
		size := eolSize(l.text, l.at)
		switch c := l.text[l.at]; {
		case c == '}':
			l.at++
			return nil
		case c == '{':
			if err := l.field(s, start); err != nil {
				return err
			}
		case size > 0 && len(s.quote) == 1:
			return fail(start, "a string does not end")
		default:
			l.at++
		}
	}
	return fail(start, "a string does not end")
}
