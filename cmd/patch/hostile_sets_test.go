package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// set is a patch set that somebody made to do harm: files by their names, and
// what cannot be told by a text.
type set struct {
	diff     string            // v1/a.diff, "" for the harmless one
	manifest string            // behind id and version
	files    map[string]string // others
	make     func(dir string) error
	names    string // the file that the refusal names, v1/a.diff if ""
	fits     bool   // it is no attack but large; what it costs is judged
}

// TestHostileSets: whatever a set says or is made of, it is refused before the
// host is looked at, in little time and memory.
func TestHostileSets(t *testing.T) {
	t.Parallel()
	for name, s := range hostileSets() {
		t.Run(name, func(t *testing.T) {
			dir, site := ground(t)
			folder := filepath.Join(dir, "sets", "x")
			lay(t, filepath.Join(folder, "manifest.toml"), naming+s.manifest)
			lay(t, filepath.Join(folder, "v1", "a.diff"), orText(s.diff, change))
			for file, text := range s.files {
				lay(t, filepath.Join(folder, file), text)
			}
			if s.make != nil {
				if err := s.make(folder); err != nil {
					t.Skip(err)
				}
			}
			was := census(t, dir)
			r := attacked(t, os.Geteuid(), dir, "apply", "x", "--patches", "sets", "--root", site)
			if s.fits {
				return
			}
			r.refuses(t, exitRefused, strings.TrimSuffix("x/"+orText(s.names, "v1/a.diff"), "/ "))
			unchanged(t, was, dir)
			if !strings.HasPrefix(name, "file: ") {
				return
			}
			if r := attacked(t, os.Geteuid(), dir, "list", "--patches", "sets", "--root", site, "--json"); r.code != exitRefused || !strings.Contains(r.stdout, `"exit"`) {
				t.Errorf("list: exit %d: %s", r.code, r.stdout)
			}
		})
	}
}

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func hostileSets() map[string]set {
	all := map[string]set{}
	for _, group := range []map[string]set{hostilePaths(), hostileHunks(), hostileHeaders(), hostileManifests(), hostileTables(), hostileFiles(), bombs()} {
		for name, s := range group {
			all[name] = s
		}
	}
	return all
}

func at(path string) string {
	return fmt.Sprintf("--- a/%s\n+++ b/%s\n@@ -1,3 +1,3 @@\n import os\n-LIMIT = 1\n+LIMIT = 1024\n NAME = \"a\"\n", path, path)
}

func hostilePaths() map[string]set {
	all := map[string]set{}
	for name, path := range map[string]string{
		"parent":           "../../etc/passwd",
		"parent inside":    "sglang/../../etc/passwd",
		"parent alone":     "..",
		"dot":              "./sglang/a.py",
		"absolute":         "/etc/passwd",
		"double slash":     "sglang//a.py",
		"trailing slash":   "sglang/a.py/",
		"backslash":        `sglang\..\..\x.py`,
		"NUL":              "sglang/a.py\x00.txt",
		"escape":           "sglang/\x1b[2Ja.py",
		"carriage return":  "sglang/a.py\r",
		"tab":              "sglang/a.py\t2026-01-01",
		"blank":            "sglang/a b.py",
		"quoted":           `"sglang/a.py"`,
		"not UTF-8":        "sglang/\xff.py",
		"bidirectional":    "sglang/\u202ea.py",
		"zero width":       "sglang/a\u200b.py",
		"records":          ".sgpatch/receipt.json",
		"records in case":  ".SGPATCH/journal.json",
		"records deep":     "sglang/.sgpatch/lock",
		"very long":        strings.Repeat("a/", 2000) + "a.py",
		"empty":            "",
		"line separator":   "sglang/a\u2028.py",
		"next line":        "sglang/a\u0085.py",
		"newline":          "sglang/a\n.py",
		"newline, escaped": `"sglang/a\n.py"`,
	} {
		all["path: "+name] = set{diff: at(path)}
	}
	all["path: other names"] = set{diff: strings.Replace(at("sglang/a.py"), "+++ b/sglang/a.py", "+++ b/sglang/b.py", 1)}
	all["path: git names others"] = set{diff: "diff --git a/sglang/b.py b/sglang/b.py\n" + change}
	return all
}

func hostileHunks() map[string]set {
	body := " import os\n-LIMIT = 1\n+LIMIT = 1024\n NAME = \"a\"\n"
	all := map[string]set{}
	for name, hunk := range map[string]string{
		"too few lines":     "@@ -1,4 +1,4 @@\n" + body,
		"too many lines":    "@@ -1,2 +1,2 @@\n" + body,
		"no lines":          "@@ -1,0 +1,0 @@\n",
		"count of nothing":  "@@ -0,0 +0,0 @@\n" + body,
		"insert alone":      "@@ -0,0 +1,1 @@\n+import os\n",
		"removes all":       "@@ -1,2 +0,0 @@\n-import os\n-LIMIT = 1\n",
		"count overflows":   "@@ -9223372036854775807,9223372036854775807 +1,3 @@\n" + body,
		"32 bits":           "@@ -4294967297,3 +4294967297,3 @@\n" + body,
		"31 bits":           "@@ -2147483648,3 +2147483648,3 @@\n" + body,
		"negative":          "@@ --1,3 +-1,3 @@\n" + body,
		"hexadecimal":       "@@ -0x1,3 +0x1,3 @@\n" + body,
		"line 0":            "@@ -0,3 +0,3 @@\n" + body,
		"leading zeros":     "@@ -001,3 +001,3 @@\n" + body,
		"new line is wrong": "@@ -1,3 +7,3 @@\n" + body,
		"changes nothing":   "@@ -1,2 +1,2 @@\n import os\n LIMIT = 1\n",
		"unordered":         "@@ -11,3 +11,3 @@\n" + body + "@@ -1,3 +1,3 @@\n" + body,
		"overlapping":       "@@ -1,3 +1,3 @@\n" + body + "@@ -3,3 +3,3 @@\n" + body,
		"the same twice":    "@@ -1,3 +1,3 @@\n" + body + "@@ -1,3 +1,3 @@\n" + body,
		"scope is a path":   "@@ -1,3 +1,3 @@ ../x\n" + body,
		"scope escapes":     "@@ -1,3 +1,3 @@ \x1b[2J\n" + body,
		"stray text":        "@@ -1,3 +1,3 @@\n" + body + "rm -rf /\n",
		"lone CR":           "@@ -1,3 +1,3 @@\n import os\n-LIMIT = 1\n+LIMIT = 1\rimport evil\n NAME = \"a\"\n",
		"NUL in a line":     "@@ -1,3 +1,3 @@\n import os\n-LIMIT = 1\n+LIMIT = \x001\n NAME = \"a\"\n",
		"no last newline":   strings.TrimSuffix("@@ -1,3 +1,3 @@\n"+body, "\n"),
		"odd marker":        "@@ -1,3 +1,3 @@\n" + body + "\\ no newline\n",
		"combined":          "@@@ -1,3 -1,3 +1,3 @@@\n" + body,
	} {
		all["hunk: "+name] = set{diff: header + hunk}
	}
	return all
}

func hostileHeaders() map[string]set {
	git := "diff --git a/sglang/a.py b/sglang/a.py\n"
	all := map[string]set{}
	for name, diff := range map[string]string{
		"creates":             "--- /dev/null\n+++ b/sglang/n.py\n@@ -0,0 +1,1 @@\n+import os\n",
		"creates, by mode":    git + "new file mode 100644\n" + change,
		"creates, by index":   git + "index 0000000..1234567\n" + change,
		"deletes":             "--- a/sglang/a.py\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-import os\n",
		"deletes, by mode":    git + "deleted file mode 100644\n" + change,
		"renames":             "diff --git a/sglang/a.py b/sglang/b.py\nsimilarity index 100%\nrename from sglang/a.py\nrename to sglang/b.py\n",
		"copies":              "diff --git a/sglang/a.py b/sglang/b.py\ncopy from sglang/a.py\ncopy to sglang/b.py\n",
		"changes a mode":      git + "old mode 100644\nnew mode 104755\n" + change,
		"mode alone":          git + "old mode 100644\nnew mode 100755\n",
		"a link":              git + "index 1234567..89abcde 120000\n" + change,
		"a submodule":         git + "index 1234567..89abcde 160000\n" + change,
		"binary":              git + "GIT binary patch\nliteral 1\nIcmZPo000310RR91\n",
		"binary files differ": "Binary files a/sglang/a.py and b/sglang/a.py differ\n",
		"the same file twice": change + change,
		"empty":               "\n",
		"no header":           "@@ -1,3 +1,3 @@\n import os\n-LIMIT = 1\n+LIMIT = 2\n NAME = \"a\"\n",
		"header alone":        header,
		"a script":            "Index: sglang/a.py\n" + change,
		"ed commands":         "1,2c\n!sh\n.\n",
		"a mail":              "From: a\nSubject: b\n\n---\n" + change,
	} {
		all["header: "+name] = set{diff: diff}
	}
	all["header: twice, in two diffs"] = set{files: map[string]string{"v1/b.diff": change}, names: "v1/b.diff"}
	return all
}

func hostileManifests() map[string]set {
	all := map[string]set{}
	for name, text := range map[string]string{
		"unknown key":       "paths = [\"/etc\"]\n",
		"key in capitals":   "ID = \"x\"\n",
		"twice":             "version = \"2\"\n",
		"LD_PRELOAD":        "[[env]]\nname = \"LD_PRELOAD\"\nvalue = \"/x.so\"\n",
		"ld_preload":        "[[env]]\nname = \"ld_preload\"\nvalue = \"/x.so\"\n",
		"PYTHONPATH":        "[[env]]\nname = \"PYTHONPATH\"\nvalue = \"/x\"\n",
		"our own":           "[[env]]\nname = \"SGPATCH_STATE_DIR\"\nvalue = \"/etc\"\n",
		"name is code":      "[[env]]\nname = \"X'] = 1\\nimport os\"\nvalue = \"1\"\n",
		"name twice":        "[[env]]\nname = \"A\"\nvalue = \"1\"\n[[env]]\nname = \"A\"\nvalue = \"2\"\n",
		"NUL":               "[[env]]\nname = \"A\"\nvalue = \"1\\u0000\"\n",
		"escape in a title": "title = \"\\u001b]0;x\\u0007\"\n",
		"another id":        "id = \"y\"\n",
		"not UTF-8":         "title = \"\xff\"\n",
		"deep arrays":       "conflicts = " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "\n",
		"deep inline":       "void = " + strings.Repeat("{a = ", 90) + "1" + strings.Repeat("}", 90) + "\n",
		"deep dots":         strings.Repeat("a.", 99) + "a = 1\n",
		"many inline":       strings.Repeat("{", 20_000) + "\n",
		"many tables":       strings.Repeat("[[env]]\n", 4000),
		"a long value":      "[[env]]\nname = \"A\"\nvalue = \"" + strings.Repeat("x", 500_000) + "\"\n",
		"a long id":         "conflicts = [\"" + strings.Repeat("x", 900_000) + "\"]\n",
		"many conflicts":    "conflicts = [" + many(100_000, `"i%d",`) + "\"i1\"]\n",
		"many options":      "[void]\nargs = [" + many(90_000, `"-i%d",`) + "\" \"]\n",
		"many names":        "[[void.env]]\noption = \"o\"\nreason = \"r\"\nnames = [" + many(90_000, `"I%d",`) + "\" \"]\n",
		"many results":      many(3000, "[[result]]\nhardware = \"%d\"\n"),
		"two megabytes":     "# " + strings.Repeat("x", 2<<20) + "\n",
		"a date":            "title = 2026-01-01\n",
	} {
		all["manifest: "+name] = set{manifest: text, names: "manifest.toml"}
	}
	return all
}

func many(n int, form string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, form, i)
	}
	return b.String()
}

func hostileTables() map[string]set {
	head := "release\tpath\tpristine_sha256\tpatched_sha256\tvariant\n"
	one, two := strings.Repeat("1", 64), strings.Repeat("2", 64)
	row := "0.5.9\tsglang/a.py\t" + one + "\t" + two + "\tv1\n"
	all := map[string]set{}
	for name, text := range map[string]string{
		"no header":       row,
		"empty":           "",
		"another path":    head + strings.Replace(row, "sglang/a.py", "../etc/passwd", 1),
		"another variant": head + strings.Replace(row, "v1", "v2", 1),
		"not a digest":    head + strings.Replace(row, one, "../"+one[3:], 1),
		"changes nothing": head + strings.Replace(row, one, two, 1),
		"twice":           head + row + row,
		"escape":          head + strings.Replace(row, "0.5.9", "\x1b[2J", 1),
		"a long line":     head + strings.Repeat("x", 10<<20),
		"many rows":       head + many(90_000, "0.%d.0\tsglang/a.py\t"+one+"\t"+two+"\tv1\n") + "x\n",
		"20 MB":           head + strings.Repeat(row, (20<<20)/len(row)),
	} {
		all["table: "+name] = set{files: map[string]string{"releases.tsv": text}, names: "releases.tsv"}
	}
	return all
}

// hostileFiles are sets made of things that are no texts.
func hostileFiles() map[string]set {
	put := func(file string, make func(path string) error) func(dir string) error {
		return func(dir string) error {
			path := filepath.Join(dir, file)
			os.Remove(path)
			return make(path)
		}
	}
	fifo := func(path string) error { return syscall.Mkfifo(path, 0o644) }
	link := func(to string) func(string) error {
		return func(path string) error { return os.Symlink(to, path) }
	}
	loop := func(path string) error { return os.Symlink(filepath.Base(path), path) }
	sparse := func(path string) error {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Truncate(10 << 30)
	}
	socket := func(path string) error {
		addr, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer syscall.Close(addr)
		return syscall.Bind(addr, &syscall.SockaddrUnix{Name: path})
	}
	folder := func(path string) error { return os.Mkdir(path, 0o755) }
	all := map[string]set{}
	for name, make := range map[string]func(string) error{
		"a FIFO": fifo, "a link to /dev/zero": link("/dev/zero"), "a link to /etc/passwd": link("/etc/passwd"), "a link out": link("../../../site/sglang/a.py"),
		"a link to itself": loop, "a link to nothing": link("nothing"), "10 GB, sparse": sparse, "a socket": socket, "a folder": folder,
	} {
		for _, file := range []string{"v1/a.diff", "releases.tsv", "check.py", "manifest.toml"} {
			if file != "v1/a.diff" && name == "a link to nothing" {
				continue // as good as absent
			}
			all["file: "+file+" is "+name] = set{make: put(file, make), names: file}
		}
	}
	return all
}

// bombs are small in what they say and large in what they might cost.
func bombs() map[string]set {
	hunks := func(n int) string {
		var b strings.Builder
		b.WriteString(header)
		for i := range n {
			fmt.Fprintf(&b, "@@ -%d,2 +%d,2 @@\n a%d\n-b\n+c\n", 1+4*i, 1+4*i, i)
		}
		return b.String()
	}
	diffs := map[string]string{}
	for i := range 3 {
		diffs[fmt.Sprintf("v%d/a.diff", i+2)] = hunks(25_000)
	}
	files := strings.Builder{}
	for i := range 5000 {
		files.WriteString(at(fmt.Sprintf("sglang/f%d.py", i)))
	}
	return map[string]set{
		"bomb: a line of 100 MB":          {diff: header + "@@ -1,3 +1,3 @@\n import os\n-LIMIT = 1\n+" + strings.Repeat("x", 100<<20) + "\n NAME = \"a\"\n"},
		"bomb: a line of 15 MB":           {diff: header + "@@ -1,3 +1,3 @@\n import os\n-LIMIT = 1\n+" + strings.Repeat("x", 15<<20) + "\n NAME = \"a\"\n"},
		"bomb: a line without end":        {diff: strings.Repeat("x", 15<<20)},
		"bomb: a million hunks":           {diff: hunks(1_000_000)},
		"bomb: hunks up to the limit":     {diff: hunks(100_001)},
		"bomb: all hunks that are let in": {diff: hunks(24_000), files: diffs, fits: true},
		"bomb: 5000 files":                {diff: files.String()},
		"bomb: hunks in many diffs":       {diff: hunks(99_000), files: diffs, names: "v2/a.diff"},
		"bomb: 100 variants":              {make: folders(100, "v%03d", change), names: "v064"},
		"bomb: many markers":              {diff: header + "@@ -1,3 +1,3 @@\n" + strings.Repeat("\\ No newline at end of file\n", 500_000)},
		"bomb: many headers":              {diff: strings.Repeat(header, 200_000)},
		"bomb: many dashes":               {diff: header + "@@ -1,3 +1,3 @@\n" + strings.Repeat("--- a/x\n+++ b/x\n", 500_000)},
		"bomb: a hunk of 8 MB":            {diff: header + fmt.Sprintf("@@ -1,%d +1,%d @@\n", 4_000_000, 4_000_000) + strings.Repeat(" \n", 4_000_000)},
		"bomb: an endless scope":          {diff: header + "@@ -1,3 +1,3 @@ " + strings.Repeat("a.", 400_000) + "a\n import os\n-LIMIT = 1\n+LIMIT = 2\n NAME = \"a\"\n"},
		"bomb: a check of 5 MB":           {files: map[string]string{"check.py": strings.Repeat("#\n", 5<<19)}, names: "check.py"},
	}
}

func folders(n int, form, diff string) func(dir string) error {
	return func(dir string) error {
		for i := range n {
			v := filepath.Join(dir, fmt.Sprintf(form, i))
			if err := os.Mkdir(v, 0o755); err != nil {
				return err
			}
			if diff == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(v, "a.diff"), []byte(diff), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
}
