package patchset

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

const (
	head  = "--- a/m.py\n+++ b/m.py\n"
	body  = " a\n-b\n+B\n c\n"
	small = head + "@@ -1,3 +1,3 @@\n" + body
)

// rename gives small another path.
func rename(path string) string { return strings.ReplaceAll(small, "m.py", path) }

func TestParseAccepts(t *testing.T) {
	for _, text := range []string{
		small,
		head + "@@ -1,3 +1,3 @@ A.__init__\n" + body,
		head + "@@ -1,3 +1,3 @@ Prüfer._1\n" + body,
		head + "@@ -1 +1,2 @@\n a\n+b\n",
		head + "@@ -7,2 +7 @@\n a\n-b\n",
		head + "@@ -1,3 +1,3 @@\n" + body + "@@ -4,3 +4,3 @@\n" + body,
		head + "@@ -1,3 +1,4 @@\n a\n-b\n+B\n+B\n c\n@@ -9,3 +10,3 @@\n" + body,
		"diff --git a/m.py b/m.py\n" + small,
		"diff --git a/m.py b/m.py\nindex 0123..89abcdef\n" + small,
		"diff --git a/m.py b/m.py\nindex 0123456..89abcde 100755\n" + small,
		small + rename("n.py"),
		small + "diff --git a/n.py b/n.py\nindex 0123456..89abcde 100644\n" + rename("n.py"),
		rename("sglang/srt/é-1+2.x/..m.py"),
		head + "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n",
		head + "@@ -1,2 +1,2 @@\n a\n-b\n+b\n\\ No newline at end of file\n",
		head + "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n",
		head + "@@ -1,2 +1,2 @@\n-a\n+b\n c\n\\ No newline at end of file\n",
		head + "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+B\r\n",
		head + "@@ -1,2 +1,3 @@\n --- a/x\n ++ b/x\n+--- a/y\n",
		head + "@@ -1,2 +1,2 @@\n a\n--- a/x\n+++ b/x\n",
	} {
		files, err := Parse("x.diff", []byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if printed := Print(files); string(printed) != text {
			t.Errorf("%q prints as %q", text, printed)
		}
	}
}

// TestParseRefuses demands the line and the reason of every refusal. The last
// text is right, but go-diff takes a removed "-- " line, an added "++ " line
// and a hunk header for the next file.
func TestParseRefuses(t *testing.T) {
	const git = "diff --git a/m.py b/m.py\n"
	for _, c := range []struct {
		text string
		want string // the start of the error behind "x.diff"
	}{
		// what the text is
		{"", ": the file is empty"},
		{"\n", ":1: an empty line"},
		{"hello\n", ":1: text that belongs to no hunk"},
		{strings.Repeat("hello", 100) + "\n", ":1: text that belongs to no hunk: \"hello"},
		{" hello\n", ":1: a file header without hunks, or text that belongs to no hunk"},
		{strings.TrimSuffix(small, "\n"), ":7: the last line has no newline"},
		{"# comment\n" + small, ":1: text that belongs to no hunk"},
		{"+comment\n" + small, ":1: text before the file header"},
		{git + " x\n" + small, ":2: text before the file header"},
		{small + "bye\n", ":8: text that belongs to no hunk"},
		{small + "diff --git a/n.py b/n.py\n", ":8: a file header without hunks"},
		{small + " bye\n", ":3: the header says -3 +3 lines, the body has -4 +4"},
		{small + "-- \n2.39\n", ":9: text that belongs to no hunk"},
		{small + "-- \n", ":3: the header says -3 +3 lines, the body has -4 +3"},
		{small + "\n", ":8: an empty line"},
		{strings.Replace(small, "\n+B", "\n\n+B", 1), ":6: an empty line"},
		{small + "\\ No newline\n", ":8: unknown marker"},
		{strings.Replace(small, "b", "\x00", 3), ":2: a NUL byte"},
		{head + "@@ -1,3 +1,3 @@\n" + strings.Replace(body, "B", "\x00", 1), ":6: a NUL byte"},
		{head + "@@ -1 +1 @@\n-a\n+" + strings.Repeat("x", maxLine) + "\n", ":5: the line is longer"},

		// what it does
		{git + "new file mode 100644\n--- /dev/null\n+++ b/m.py\n@@ -0,0 +1 @@\n+a\n", ":2: creates a file"},
		{git + "deleted file mode 100644\n--- a/m.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", ":2: deletes a file"},
		{"--- /dev/null\n+++ b/m.py\n@@ -0,0 +1 @@\n+a\n", ":1: creates a file"},
		{"--- a/m.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", ":2: deletes a file"},
		{git + "index 0000000..89abcde\n" + small, ":2: creates a file"},
		{git + "index 89abcde..0000000\n" + small, ":2: deletes a file"},
		{git + "index 0123456..89abcde 120000\n" + small, ":2: not a regular file"},
		{git + "index 0123456..89abcde 160000\n" + small, ":2: not a regular file"},
		{git + "index 0123456,89abcde\n" + small, ":2: not an index line"},
		{git + "old mode 100644\nnew mode 100755\n", ":2: changes a file's mode"},
		{git + "similarity index 90%\nrename from m.py\nrename to n.py\n", ":2: renames or copies"},
		{git + "rename from m.py\nrename to n.py\n", ":2: renames a file"},
		{git + "copy from m.py\ncopy to n.py\n", ":2: copies a file"},
		{git + "Binary files a/m.py and b/m.py differ\n", ":2: a binary patch"},
		{git + "GIT binary patch\nliteral 0\n", ":2: a binary patch"},
		{"Only in a: m.py\n", ":1: names a file"},

		// its file headers
		{git, ":1: a file header without hunks"},
		{git + git + small, ":1: no file header"},
		{"index 0123456..89abcde\n" + small, ":1: text before the file header"},
		{"diff --git a/m.py b/n.py\n" + small, ":1: names other files"},
		{head, ":1: m.py has no hunk"},
		{head + rename("n.py"), ":1: m.py has no hunk"},
		{small + small, ":8: m.py is in this diff already"},
		{"--- a/m.py\n@@ -1,3 +1,3 @@\n" + body, ":1: the file header cannot be read"},
		{small + "--- a/n.py\n@@ -1,3 +1,3 @@\n" + body, ":3: the header says"},
		{small + "diff --git a/n.py b/n.py\n--- a/n.py\n@@ -1,3 +1,3 @@\n" + body, ":9: the file header cannot be read"},
		{strings.Replace(small, "+++ b/m.py", "+++ b/n.py", 1), ":2: the new name"},
		{strings.Replace(small, "--- a/m.py", "--- m.py", 1), ":1: the old name"},
		{strings.Replace(small, "--- a/m.py", "--- a/m.py\t2024-01-02 03:04:05 +0000", 1), ":1: a time behind the name"},
		{strings.Replace(small, "--- a/m.py", "--- a/m.py\tyesterday", 1), ":1: the file header cannot be read"},
		{strings.Replace(small, "--- a/m.py", "--- a/m.py\t", 1), ":1: not in the form"},
		{strings.Replace(small, "+++ b/m.py", "+++ b/m.py ", 1), ":2: not in the form"},
		{strings.Replace(small, "--- a/m.py", `--- "a/m.py"`, 1), ":1: not in the form"},
		{strings.Replace(small, "--- a/m.py\n", "--- a/m.py\r\n", 1), ":1: not in the form"},
		{strings.Replace(small, "@@\n", "@@\r\n", 1), ":3: a carriage return in a header line"},

		// its hunks
		{head + "@@ -1,3 +1,3\n" + body, ":3: not a hunk header"},
		{head + "@@ -a +b @@\n" + body, ":3: not a hunk header"},
		{head + "@@ -1,3 +1,3 @@@\n" + body, ":3: not a hunk header"},
		{head + "@@ -1,3 +1,3000000000 @@\n" + body, ":3: not a hunk header"},
		{head + "@@@ -1,3 -1,3 +1,3 @@@\n" + body, ":3: not a hunk header"},
		{head + "@@ -1,1 +1 @@\n-a\n+b\n", ":3: not in the form"},
		{head + "@@ -01,3 +1,3 @@\n" + body, ":3: not in the form"},
		{head + "@@ -1,3 +1,3 @@ \n" + body, ":3: not in the form"},
		{head + "@@ -1,3 +1,3 @@  A\n" + body, ":3: not in the form"},
		{head + "@@ -1,3 +1,4 @@\n" + body, ":3: the header says -3 +4 lines, the body has -3 +3"},
		{head + "@@ -1,2 +1,3 @@\n" + body, ":3: the header says"},
		{head + "@@ -0,3 +0,3 @@\n" + body, ":3: the hunk starts at line 0"},
		{head + "@@ -1,3 +2,3 @@\n" + body, ":3: the hunk's new lines start at 2"},
		{head + "@@ -1,3 +1,3 @@\n" + body + "@@ -3,3 +3,3 @@\n" + body, ":8: the hunk starts at line 3, before line 4"},
		{head + "@@ -5,3 +5,3 @@\n" + body + "@@ -1,3 +1,3 @@\n" + body, ":8: the hunk starts at line 1"},
		{head + "@@ -1,0 +2 @@\n+a\n", ":3: the hunk has no old line"},
		{head + "@@ -1 +0,0 @@\n-a\n", ":3: the hunk leaves no line"},
		{head + "@@ -1 +1 @@\n a\n", ":3: the hunk changes nothing"},
		{head + "@@ -1,3 +1,3 @@ def f(x):\n" + body, ":3: \"def f(x):\" is not the name of a scope"},
		{head + "@@ -1,3 +1,3 @@ A..f\n" + body, ":3: \"A..f\" is not"},
		{head + "@@ -1,3 +1,3 @@ A.1\n" + body, ":3: \"A.1\" is not"},
		{head + "@@ -1,3 +1,3 @@ A.\xff\n" + body, ":3: "},
		{strings.Replace(rename("m.txt"), "@@\n", "@@ A\n", 1), ":3: a scope \"A\" in a file that is not Python"},
		{head + "@@ -1,2 +1,2 @@\n-a\n\\ No newline at end of file\n b\n+c\n", ":6: a line behind the end"},
		{head + "@@ -1,2 +1,2 @@\n a\n-b\n+b\n\\ No newline at end of file\n@@ -3,3 +3,3 @@\n" + body, ":6: the file ends here"},
		{head + "@@ -1,2 +1,2 @@\n a\n\\ No newline at end of file\n-b\n+b\n", ":4: not in the form"},
		{head + "@@ -1 +1 @@\n-b\n\\ No newline at end of file\n\\ No newline at end of file\n+b\n", ":6: not in the form"},
		{head + "@@ -1,2 +1,2 @@\n-a\n+b\n \n\\ No newline at end of file\n", ":6: a last line without text"},
		{head + "@@ -1 +1,2 @@\n a\n+\n\\ No newline at end of file\n", ":5: a last line without text"},
		{head + "@@ -1 +1 @@\n-a\r\n\\ No newline at end of file\n+b\n", ":4: the file would end in a lone"},
		{head + "@@ -1 +1 @@\n-a\rb\n+b\n", ":4: a carriage return inside a line"},
		{head + "@@ -1 +1 @@\n-a\r\r\n+b\n", ":4: a carriage return inside a line"},
		{head + "@@ -1 +1 @@\n-" + bom + "a\n+b\n", ":4: a byte order mark"},
		{head + "@@ -1,2 +1,2 @@\n a\n--- a/x\n+++ b/x\n@@ -4 +4 @@\n-a\n+b\n", ":3: the header says"},
	} {
		_, err := Parse("x.diff", []byte(c.text))
		var data *DataError
		if !errors.As(err, &data) || !strings.HasPrefix(err.Error(), "x.diff"+c.want) {
			t.Errorf("%.200q: %v, want x.diff%s", c.text, err, c.want)
		}
	}
}

func TestParsePaths(t *testing.T) {
	for path, want := range map[string]string{
		"":                        "no file header",
		"/etc/passwd":             "is absolute",
		"../m.py":                 ". or .. element",
		"a/../../m.py":            ". or .. element",
		"a/./m.py":                ". or .. element",
		"a//m.py":                 ". or .. element",
		"a/":                      ". or .. element",
		"..":                      ". or .. element",
		`a\m.py`:                  "backslash",
		".sgpatch/x.py":           ".sgpatch",
		"a/.SGPatch/x.py":         ".sgpatch",
		"a b.py":                  "blank",
		"a\u00a0b.py":             "blank",
		"a\x1bb.py":               "control",
		"a\u0085b.py":             "control",
		"a\xffb.py":               "UTF-8",
		strings.Repeat("x", 1025): "longer than",
	} {
		_, err := Parse("x.diff", []byte(rename(path)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
}

func TestParseLimits(t *testing.T) {
	many := func(n int) []byte {
		b := []byte(head)
		for i := range n {
			b = fmt.Appendf(b, "@@ -%d +%d @@\n-a\n+b\n", i+1, i+1)
		}
		return b
	}
	if files, err := Parse("x", many(maxHunks)); err != nil || len(files[0].Hunks) != maxHunks {
		t.Error(err)
	}
	if _, err := Parse("x", many(maxHunks+1)); err == nil || !strings.Contains(err.Error(), "more than 100000 hunks") {
		t.Error(err)
	}
	if _, err := Parse("x", bytes.Repeat([]byte(" \n"), maxDiff/2+1)); err == nil || !strings.Contains(err.Error(), "larger than 8 MiB") {
		t.Error(err)
	}
}

func TestReverse(t *testing.T) {
	text := "diff --git a/m.py b/m.py\nindex 0123456..89abcde 100644\n" + head +
		"@@ -1,3 +1,4 @@ f\n a\n-b\n+B\n+C\n c\n@@ -8,2 +9,2 @@\n x\n-y\n\\ No newline at end of file\n+y\n"
	want := "diff --git a/m.py b/m.py\nindex 89abcde..0123456 100644\n" + head +
		"@@ -1,4 +1,3 @@ f\n a\n-B\n-C\n+b\n c\n@@ -9,2 +8,2 @@\n x\n-y\n+y\n\\ No newline at end of file\n"
	f := parseOne(t, text)
	if have := string(Print([]File{f.Reverse()})); have != want {
		t.Errorf("have\n%s\nwant\n%s", have, want)
	}
	if have := string(Print([]File{f.Reverse().Reverse()})); have != text {
		t.Errorf("twice reversed\n%s", have)
	}
}
