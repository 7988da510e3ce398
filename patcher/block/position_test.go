package block

import (
	"errors"
	"strings"
	"testing"
)

// In these texts the block belongs where @@ stands.
var positions = map[string]string{
	"empty":                              "@@",
	"code":                               "@@import os\n",
	"comment":                            "@@# licence\n# text\nimport os\n",
	"shebang":                            "#!/usr/bin/env python3\n@@import os\n",
	"shebang and comment":                "#!/usr/bin/env python3\n@@# licence\nimport os\n",
	"bom":                                "\xef\xbb\xbf@@import os\n",
	"bom and shebang":                    "\xef\xbb\xbf#!/usr/bin/python3\n@@import os\n",
	"coding in line 1":                   "# -*- coding: utf-8 -*-\n@@import os\n",
	"coding in line 2":                   "#!/usr/bin/python3\n# vim: set fileencoding=latin-1 :\n@@x = '\xe9'\n",
	"coding after a blank line":          " \t\n# coding: latin-1\n@@x = '\xe9'\n",
	"coding after code is none":          "@@import os\n# coding: latin-1\n",
	"coding in line 3 is none":           "@@# a\n# b\n# coding: latin-1\nimport os\n",
	"coding in the docstring is none":    "'''\n# coding: utf-7\n'''\n@@import os\n",
	"two-byte, ASCII at the top":         "# coding: shift_jis\n@@x = '\x95\x5c'\n",
	"docstring":                          "'''Doc.'''\n@@import os\n",
	"docstring, comments around":         "# a\n\n'''Doc.'''  # b\n@@\n# c\nimport os\n",
	"docstring over lines":               "\"\"\"Doc.\n\nfrom __future__ import division\n\"\"\"\n@@import os\n",
	"docstring, one quote, continued":    "'Doc\\\nmore'\n@@import os\n",
	"docstring with quotes in it":        "\"\"\"a \"\" \\\"\"\" ' b\"\"\"\n@@import os\n",
	"docstring, raw":                     "r'''Doc \\'''\n'''\n@@import os\n",
	"docstring, unicode":                 "U'Doc'\n@@import os\n",
	"docstring, joined":                  "'a' \"b\" '''c\n''' \\\n  'd'\n@@import os\n",
	"docstring, bracketed":               "( # x\n('a'\n# y\n  'b')\n)\n@@import os\n",
	"docstring, no line end":             "'Doc'@@",
	"docstring and a comment only":       "'Doc'  # x@@",
	"docstring and code":                 "'Doc'; x = (\n1)\n@@import os\n",
	"docstring and a semicolon":          "'Doc';\n@@import os\n",
	"docstring and future on a line":     "'Doc'; from __future__ import division; import os\n@@import sys\n",
	"docstring and a broken from":        "'Doc'; from\n@@import sys\n",
	"docstring and from, no line end":    "'Doc'; from@@",
	"two strings":                        "'Doc'\n@@'more'\nimport os\n",
	"two strings and a future":           "'Doc'\n'more'\nfrom __future__ import division\n@@import os\n",
	"bytes":                              "@@b'Doc'\nimport os\n",
	"f-string":                           "@@f'Doc'\nimport os\n",
	"joined with an f-string":            "@@'a' f'Doc'\nimport os\n",
	"tuple":                              "@@'a',\nimport os\n",
	"expression":                         "@@'a' + 'b'\nimport os\n",
	"method":                             "@@'a'.strip()\nimport os\n",
	"call of a string":                   "@@'a'('b')\nimport os\n",
	"annotation":                         "@@'a': int\nimport os\n",
	"empty tuple":                        "@@()\nimport os\n",
	"future":                             "from __future__ import division\n@@import os\n",
	"futures":                            "from __future__ import division\n\n# x\nfrom __future__ import annotations # y\n@@\nimport os\n",
	"future, bracketed":                  "from __future__ import (division, # x ;\n  annotations\n)\n@@import os\n",
	"future, continued":                  "from \\\n __future__ \\\n  import division, \\\n   annotations\n@@import os\n",
	"future, joined":                     "from __future__ import division; from __future__ import annotations; x = 1\n@@import os\n",
	"future, tab and form feed":          "\f\nfrom\t__future__\fimport division\n@@import os\n",
	"future, star":                       "from __future__ import *\n@@import os\n",
	"future, no line end":                "from __future__ import annotations@@",
	"future in a string":                 "@@x = '''\nfrom __future__ import division\n'''\n",
	"future later":                       "@@import os\nfrom __future__ import division\n",
	"future after docstring and code":    "'Doc'\n@@import os\nfrom __future__ import division\n",
	"future, relative":                   "from . .__future__ import division\n@@import os\n",
	"not a future import":                "@@import __future__\nfrom __future__ import division\n",
	"crlf":                               "#!/x\r\n'''Doc\r\n'''\r\nfrom __future__ import division\r\n@@import os\r\n",
	"crlf continuation":                  "'Doc' \\\r\n 'x'\r\n@@import os\r\n",
	"carriage return as a line end":      "# x\n# y\r'Doc'\r@@import os\n",
	"indented":                           "@@    x = 1\n",
	"indented after the docstring":       "'Doc'\n@@    x = 1\n",
	"else, which has no if":              "'Doc'\n@@else:\n    x = 1\n",
	"finally, which has no try":          "@@finally:\n    x = 1\n",
	"except, which has no try":           "@@except OSError:\n    x = 1\n",
	"unfinished, later":                  "'Doc'\n@@x = '''\n",
	"bracket does not end":               "@@('Doc'\nimport os\n",
	"closing bracket":                    "@@)\n'Doc'\n",
	"letters above ASCII":                "'D\u00f6c'\n@@\u00e4 = 1\n",
	"blank lines only":                   "@@\n\n",
	"carriage return inside, and at end": "'Doc'\n@@x = 1\r",
}

// In these there is no place.
var unfit = map[string]string{
	"lone carriage returns":      "import os\rimport sys\r",
	"docstring does not end":     "'''Doc.\nimport os\n",
	"docstring cut by a line":    "'Doc\nimport os\n",
	"continuation at the end":    "'Doc' \\\n",
	"continuation and nothing":   "'Doc' \\",
	"continued future":           "from \\\n __future__ \\",
	"bracket at the end":         "('Doc'",
	"future does not end":        "from __future__ import (division\nimport os\n",
	"rest of the line":           "'Doc'; x = '''\n",
	"utf-7":                      "# coding: utf-7\nimport os\n",
	"utf-16":                     "# coding: utf-16\nimport os\n",
	"EBCDIC":                     "# coding: cp037\nimport os\n",
	"nobody knows":               "#!/x\n# coding: uft-8\nimport os\n",
	"two-byte with letters":      "# coding: shift_jis\n'''\x95\x5c'''\nimport os\n",
	"NUL":                        "import os\n\x00\n",
	"utf-16 with its mark":       "\xff\xfei\x00m\x00",
	"string after the docstring": "'Doc'\n'''more\n",
}

func TestPosition(t *testing.T) {
	for name, marked := range positions {
		t.Run(name, func(t *testing.T) {
			want := strings.Index(marked, "@@")
			text := marked[:want] + marked[want+2:]
			if got, err := Position([]byte(text)); got != want || err != nil {
				t.Fatalf("%d, %v; want %d", got, err, want)
			}
			with := set(t, text, one(rootA))
			if !strings.HasPrefix(with, text[:want]) || !strings.HasSuffix(with, text[want:]) {
				t.Errorf("changed outside the block: %q", with)
			}
			if got := set(t, with, Block{}); got != text {
				t.Errorf("taken out: %q", got)
			}
		})
	}
}

func TestUnfit(t *testing.T) {
	for name, text := range unfit {
		t.Run(name, func(t *testing.T) {
			_, err := Set([]byte(text), one(rootA))
			var source *SourceError
			if !errors.As(err, &source) || source.Line < 1 {
				t.Errorf("%v", err)
			}
			if got := set(t, text, Block{}); got != text {
				t.Errorf("nothing to do, and yet: %q", got)
			}
		})
	}
}

// The first two lines of a file with a block must not name an encoding.
func TestRootIsNoCodingLine(t *testing.T) {
	text := set(t, "x = '\u00e9'\n", one("/opt/coding=latin-1/coding: cp1252"))
	for l := range lines([]byte(text)) {
		if codingLine().Match(l.body) {
			t.Errorf("line %d: %s", l.number, l.body)
		}
	}
}

func TestEncodings(t *testing.T) {
	cases := map[string]encoding{
		"utf-8": plain, "UTF8": plain, "utf_8": plain, "utf-8-sig": plain, "utf-8-unix": plain, "latin-1": plain, "Latin1": plain,
		"iso-8859-15": plain, "iso8859_2": plain, "ISO_8859-1": plain, "cp1252": plain, "windows-1251": plain, "koi8-r": plain,
		"ascii": plain, "us-ascii": plain, "euc-jp": plain, "euc_kr": plain, "cp437": plain, "mac-roman": plain, "iso-latin-1-unix": plain,
		"gbk": twoByte, "GB18030": twoByte, "big5": twoByte, "shift_jis": twoByte, "sjis": twoByte, "cp932": twoByte, "euc-kr": plain,
		"utf-7": unknown, "utf-16": unknown, "utf_32_le": unknown, "cp037": unknown, "cp500": unknown, "cp1140": unknown,
		"iso-2022-jp": unknown, "hz": unknown, "unicode_escape": unknown, "raw_unicode_escape": unknown, "rot13": unknown, "utf": unknown,
	}
	for name, want := range cases {
		if got := encodingOf(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}
