package patchset

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const goodManifest = `# a set
id = "x"
version = "1.2.0"
title = "Opens a gate"
conflicts = ["y", "nccl-pcie"]

[[env]]
name = "SGLANG_GATE"
value = "1"
switch = true

[[env]]
name = "SGLANG_GATE_MAX"
optional = true

[[shadow]]
name = "SGLANG_OTHER"
reason = "comes first in the dispatch"

[void]
args = ["--disable-custom-all-reduce"]

[[void.env]]
names = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"]
option = "expandable_segments:True"
reason = "breaks the registration"

[[unsupported]]
to = "0.4.1.post6"
reason = "imports another file"

[[superseded]]
from = "0.5.22"
text = "use the other one"

[[note]]
from = "0.4.1.post7"
to = "0.5.1"
text = "no machine code"

[[result]]
hardware = "8 cards"
outcome = "worse"
text = "38.3 tok/s against 82"
source = "a report"
`

var (
	digestA = strings.Repeat("a", 64)
	digestB = strings.Repeat("b", 64)
	digestC = strings.Repeat("c", 64)
)

func tsv(rows ...string) string { return tableHeader + strings.Join(rows, "\n") + "\n" }

func row(release, path, variant string) string {
	return strings.Join([]string{release, path, digestA, digestB, variant}, "\t")
}

// goodSet is a set with two variants, the second with two diffs.
func goodSet() fstest.MapFS {
	return files(map[string]string{
		"manifest.toml": goodManifest,
		"v1/m.diff":     small,
		"v2/1.diff":     rename("n.py"),
		"v2/2.diff":     small,
		"v2/README":     "not ours",
		"docs/x.txt":    "not ours",
		".git/x.diff":   "not ours",
		"check.py":      "pass\n",
		"releases.tsv":  tsv(row("0.5.9", "m.py", "v1"), row("0.5.10", "m.py", "v2"), row("0.5.10", "n.py", "v2")),
	})
}

func files(texts map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range texts {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

func TestLoad(t *testing.T) {
	s, err := Load(goodSet())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Load(files(map[string]string{"manifest.toml": bom + "id = \"x\"\nversion = \"1\"\n[[env]]\nname = \"A\"\nvalue = \"1\"\n"})); err != nil {
		t.Errorf("with a byte order mark: %v", err)
	}
	if s.ID != "x" || s.Version != "1.2.0" || len(s.Variants) != 2 || string(s.Check) != "pass\n" || len(s.Rows) != 3 {
		t.Errorf("%+v", s)
	}
	if e := s.Env; len(e) != 2 || e[0] != (EnvEntry{"SGLANG_GATE", "1", true, false}) || e[1] != (EnvEntry{"SGLANG_GATE_MAX", "", false, true}) {
		t.Errorf("%+v", e)
	}
	if v := s.Void; len(v.Args) != 1 || len(v.Env) != 1 || len(v.Env[0].Names) != 2 {
		t.Errorf("%+v", v)
	}
	if len(s.Shadows)+len(s.Superseded)+len(s.Notes)+len(s.Results) != 4 {
		t.Errorf("%+v", s)
	}
	v, ok := s.Variant("v2")
	if !ok || string(v.Text) != rename("n.py")+small || len(v.Files) != 2 || v.Files[0].Path != "m.py" {
		t.Errorf("%+v", v)
	}
	if f, ok := v.File("n.py"); !ok || f.Path != "n.py" {
		t.Errorf("%+v", f)
	}
	_, okSet := s.Variant("v3")
	_, okFile := v.File("o.py")
	if okSet || okFile {
		t.Error("found what is not there")
	}
	if have := s.Paths(); !slices.Equal(have, []string{"m.py", "n.py"}) {
		t.Errorf("%v", have)
	}
	if rows := s.Listed("m.py", Digest(digestA)); len(rows) != 2 || rows[1].Release != "0.5.10" {
		t.Errorf("%v", rows)
	}
	if rows := s.PatchedRows("n.py", Digest(digestB)); len(rows) != 1 || rows[0].Variant != "v2" {
		t.Errorf("%v", rows)
	}
	if rows := s.Listed("m.py", Digest(digestB)); rows != nil {
		t.Errorf("%v", rows)
	}
	if why, ok := s.UnsupportedReason("0.4.0"); !ok || why != "imports another file" {
		t.Error(why)
	}
	if _, ok := s.UnsupportedReason("0.4.1.post7"); ok {
		t.Error("0.4.1.post7 is refused")
	}
}

func TestLoadOfEnvOnly(t *testing.T) {
	s, err := LoadNamed(files(map[string]string{"manifest.toml": goodManifest}), "x")
	if err != nil || s.Variants != nil || s.Rows != nil || s.Check != nil {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Load(fstest.MapFS{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestLoadRefuses changes one file of a good set and demands an error that
// starts with its name and says why.
func TestLoadRefuses(t *testing.T) {
	m := func(old, new string) string { return strings.Replace(goodManifest, old, new, 1) }
	const toml = "manifest.toml"
	for _, c := range []struct{ file, text, want string }{
		{toml, m(`"x"`, `"z"`), "x/manifest.toml: the id is z"},
		{toml, m(`"x"`, `"X"`), "x/manifest.toml: the id"},
		{toml, m(`"x"`, `"-x"`), "x/manifest.toml: the id"},
		{toml, m(`"1.2.0"`, `""`), "x/manifest.toml: the version"},
		{toml, m(`"1.2.0"`, `1`), "x/manifest.toml"},
		{toml, m(`id =`, `Id =`), `x/manifest.toml: unknown key "Id"`},
		{toml, m(`id =`, "colour = 1\nid ="), `x/manifest.toml: unknown key "colour"`},
		{toml, m(`switch =`, `switched =`), `x/manifest.toml: unknown key "env.switched"`},
		{toml, m(`id =`, `id`), "x/manifest.toml:2: "},
		{toml, m("[[env]]\nname = \"SGLANG_GATE_MAX\"\noptional = true\n", "") + "\n[note2]\n", `x/manifest.toml: unknown key "note2"`},
		{toml, "id = \"x\"\n[env]\nname = \"A\"\n", `x/manifest.toml: "env" is one table; write [[env]]`},
		{toml, "void = { args = [\"--a\"], foo = 1 }\n", `x/manifest.toml: unknown key "void.foo"`},
		{toml, m(`value = "1"`, `value = 1`), `x/manifest.toml:9: "env.value: cannot decode TOML integer"`},
		{toml, m("Opens", "Opens\\u001b"), "x/manifest.toml: the title"},
		{toml, m(`"y"`, `"x"`), "x/manifest.toml: conflicts"},
		{toml, m(`"y"`, `"nccl-pcie"`), "x/manifest.toml: conflicts"},
		{toml, m(`"SGLANG_GATE"`, `"SGLANG-GATE"`), "x/manifest.toml: env"},
		{toml, m(`"SGLANG_GATE"`, `"1A"`), "x/manifest.toml: env"},
		{toml, m(`"SGLANG_GATE"`, `""`), "x/manifest.toml: env"},
		{toml, m(`"SGLANG_GATE"`, `"LD_PRELOAD"`), "x/manifest.toml: env"},
		{toml, m(`"SGLANG_GATE"`, `"PATH"`), "x/manifest.toml: env"},
		{toml, m(`"SGLANG_GATE"`, `"https_proxy"`), "x/manifest.toml: env"},
		{toml, m(`"SGLANG_GATE"`, `"PYTHONSTARTUP"`), "x/manifest.toml: env"},
		{toml, m(`"SGLANG_GATE_MAX"`, `"SGLANG_GATE"`), "x/manifest.toml: env"},
		{toml, m(`value = "1"`, `value = "on"`), "x/manifest.toml: env"},
		{toml, m("value = \"1\"\nswitch = true", `value = "a\u0000"`), "x/manifest.toml: env: the value"},
		{toml, m("value = \"1\"\nswitch = true", `value = "`+strings.Repeat("a", 4097)+`"`), "x/manifest.toml: env: the value"},
		{toml, m(`value = "1"`, ``), "x/manifest.toml: env"},
		{toml, m(`optional = true`, "optional = true\nvalue = \"\""), "x/manifest.toml: env"},
		{toml, m(`"SGLANG_OTHER"`, `"A=B"`), "x/manifest.toml: shadow"},
		{toml, m(`"comes first in the dispatch"`, `""`), "x/manifest.toml: shadow"},
		{toml, m(`"--disable`, `"disable`), "x/manifest.toml: void"},
		{toml, m(`"PYTORCH_ALLOC_CONF"`, `""`), "x/manifest.toml: void.env"},
		{toml, m(`option = "expandable_segments:True"`, ``), "x/manifest.toml: void.env"},
		{toml, m(`to = "0.4.1.post6"`, `to = "latest"`), "x/manifest.toml: unsupported"},
		{toml, m(`reason = "imports another file"`, ``), "x/manifest.toml: unsupported"},
		{toml, m(`from = "0.4.1.post7"`, `from = "0.5.2"`), "x/manifest.toml: note: 0.5.2 comes after 0.5.1"},
		{toml, m(`"worse"`, `"bad"`), "x/manifest.toml: result"},
		{toml, m(`source = "a report"`, ``), "x/manifest.toml: result"},
		{toml, "\xff", "x/manifest.toml: not UTF-8"},
		{toml, goodManifest + strings.Repeat("#", maxManifest), "x/manifest.toml: larger than 1024 KiB"},

		// bombs
		{toml, "a=" + strings.Repeat("[", 500_000), "x/manifest.toml: more than 10000"},
		{toml, "a=" + strings.Repeat("{a=", 200_000), "x/manifest.toml: more than 100 "},
		{toml, strings.Repeat("a.", 500_000) + "a=1", "x/manifest.toml: more than 20000"},
		{toml, strings.Repeat("a.", 101) + "a=1", "x/manifest.toml:1: more than 100 dots"},
		{toml, strings.Repeat("[[env]]\n", 100_000), "x/manifest.toml: more than 10000"},
		{toml, strings.Repeat("a=1\n", 100_000), "x/manifest.toml: more than 20000"},

		{"v1/m.diff", strings.Replace(small, "b/m.py", "b/../m.py", 1), "x/v1/m.diff:2: "},
		{"v1/n.diff", "hello\n", "x/v1/n.diff:1: "},
		{"v2/3.diff", small, "x/v2/3.diff: m.py is in v2/2.diff already"},
		{"v 3/1.diff", small, "x/v 3: not the name of a variant"},
		{"check.py", strings.Repeat("#", maxCheck+1), "x/check.py: larger than"},

		{"releases.tsv", "", "x/releases.tsv: the file is empty"},
		{"releases.tsv", "release\tpath\n", "x/releases.tsv:1: the first line"},
		{"releases.tsv", strings.TrimSuffix(tsv(row("0.5.9", "m.py", "v1")), "\n"), "x/releases.tsv:2: not five fields"},
		{"releases.tsv", tsv(row("0.5.9", "m.py", "v1") + "\tx"), "x/releases.tsv:2: not five fields"},
		{"releases.tsv", tsv(row("0.5.9", "m.py", "v1"), ""), "x/releases.tsv:3: not five fields"},
		{"releases.tsv", tsv(row("latest", "m.py", "v1")), "x/releases.tsv:2: \"latest\" is not a release"},
		{"releases.tsv", tsv(row("0.5.9", "n.py", "v1")), "x/releases.tsv:2: the variant v1 does not change \"n.py\""},
		{"releases.tsv", tsv(row("0.5.9", "m.py", "v3")), "x/releases.tsv:2: there is no variant \"v3\""},
		{"releases.tsv", tsv(strings.ToUpper(row("0.5.9", "m.py", "v1"))), "x/releases.tsv:2: a digest"},
		{"releases.tsv", tsv(strings.ReplaceAll(row("0.5.9", "m.py", "v1"), "a", "b")), "x/releases.tsv:2: the two digests are the same"},
		{"releases.tsv", tsv(row("0.5.9", "m.py", "v1"), row("0.5.9", "m.py", "v1")), "x/releases.tsv:3: release 0.5.9 has a row for m.py already"},
		{"releases.tsv", tsv(row("0.5.9", "m.py", "v1"), row("0.5.9", "m.py", "v2")), "x/releases.tsv:3: release 0.5.9 has variant v1 in line 2"},
		{"releases.tsv", tsv(row("0.5.8", "m.py", "v1"), row("0.5.9", "m.py", "v2")), "x/releases.tsv:3: release 0.5.9 has no row for n.py"},
		{"releases.tsv", tsv(row("0.5.8", "m.py", "v1"), strings.ReplaceAll(row("0.5.9", "m.py", "v1"), digestB, digestC)), "x/releases.tsv:3: the same pristine"},
	} {
		set := goodSet()
		set[c.file] = &fstest.MapFile{Data: []byte(c.text)}
		s, err := LoadNamed(set, "x")
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || s.ID != "" {
			t.Errorf("%s: %.200q: %v, want %s", c.file, c.text, err, c.want)
		}
		var d *DataError
		if !errors.As(err, &d) {
			t.Errorf("%T is not a *DataError", err)
		}
	}
}

func TestLoadNeedsSomething(t *testing.T) {
	_, err := Load(files(map[string]string{"manifest.toml": "id = \"x\"\nversion = \"1\"\n"}))
	if err == nil || !strings.HasPrefix(err.Error(), "x/manifest.toml: the set has neither") {
		t.Error(err)
	}
	set := goodSet()
	set["releases.tsv"] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	if _, err := Load(set); err == nil {
		t.Error("a folder was taken for the table")
	}
}

// TestLoadThroughLinks: a folder of a user may be a mounted volume, whose files
// and folders are links.
func TestLoadThroughLinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "..data"), goodSet()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"manifest.toml", "releases.tsv", "v1", "v2"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if s, err := Load(root.FS()); err != nil || len(s.Variants) != 2 || len(s.Rows) != 3 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestLoadLimits(t *testing.T) {
	with := func(more map[string]string) error {
		set := goodSet()
		maps.Copy(set, files(more))
		_, err := Load(set)
		return err
	}
	numbered := func(n int, name string, text func(int) string) map[string]string {
		out := map[string]string{}
		for i := range n {
			out[fmt.Sprintf(name, i)] = text(i)
		}
		return out
	}
	one := func(i int) string { return rename(fmt.Sprintf("p%d.py", i)) }
	big := small + "@@ -9,3 +9,3 @@\n" + string(bytes.Repeat([]byte(" "+strings.Repeat("x", maxLine-2)+"\n"), 4)) + "-b\n+B\n"
	big = strings.Replace(big, "-9,3 +9,3", "-9,5 +9,5", 1)
	for _, c := range []struct {
		name string
		more map[string]string
		want string
	}{
		{"1000 files", numbered(1000, "v3/%d.diff", one), ""},
		{"1000 files in one diff", map[string]string{"v3/all.diff": strings.Join(slices.Collect(maps.Values(numbered(1000, "%d", one))), "")}, ""},
		{"4094 files", numbered(4094, "v3/%d.diff", one), "the set changes more than 4096 files"},
		{"62 variants more", numbered(62, "w%d/1.diff", one), ""},
		{"63 variants more", numbered(63, "w%d/1.diff", one), "more than 64 variants"},
		{"10001 entries", numbered(10_001, "v3/%d.txt", one), "more than 10000 entries"},
		{"8 MiB", numbered(5, "w%d/1.diff", func(int) string { return big }), "larger than 8 MiB"},
	} {
		err := with(c.more)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestCompareReleases(t *testing.T) {
	ascending := []string{
		"", "latest", "0.4", "0.4.0.post1", "0.4.1.post6", "0.4.1.post7", "0.4.1.post10", "0.4.2", "0.4.10", "0.4.10.post2",
		"0.5.1", "0.5.9.dev1", "0.5.9a1.dev3", "0.5.9a1", "0.5.9b1", "0.5.9rc1.dev2", "0.5.9rc1", "0.5.9rc1.post1", "0.5.9rc2", "0.5.9.dev1.x",
		"0.5.9", "0.5.9+cu128", "0.5.9.post1.dev1", "0.5.9.post1", "0.5.9.post2", "0.5.12.post1", "0.5.13",
		"1", "99999999999999999999", "100000000000000000000",
	}
	ascending = slices.DeleteFunc(ascending, func(s string) bool { return strings.HasSuffix(s, ".x") })
	for i, a := range ascending {
		for j, b := range ascending {
			if have, want := CompareReleases(a, b), min(1, max(-1, i-j)); have != want {
				t.Errorf("%q, %q: %d, want %d", a, b, have, want)
			}
		}
	}
	for _, same := range [][2]string{{"0.5", "0.5.0.0"}, {"v0.5.9", "0.5.9"}, {"0.5.9-rc.1", "0.5.9rc01"}, {"0.5.9.Post1", "0.5.9-post1"}, {"0.5.9.dev", "0.5.9.dev0"}, {"0.5.9c1", "0.5.9preview1"}} {
		if c := CompareReleases(same[0], same[1]); c != 0 {
			t.Errorf("%v: %d", same, c)
		}
	}
	for _, s := range []string{"", "x", "1.", ".1", "1..2", "1.2x", "1.2.dev1.post1", "1.2+a b", "1.2 "} {
		if isRelease(s) {
			t.Errorf("%q is a release", s)
		}
	}
}

func TestErrorTexts(t *testing.T) {
	clash := &ClashError{A: Edit{Hunk: 1, Line: 2}, B: Edit{Hunk: 3, Line: 4}}
	if s := clash.Error(); s != "two changes meet: hunk 1 at line 2 and hunk 3 at line 4" {
		t.Error(s)
	}
	if d := DigestOf([]byte("abc")); !isDigest(d) || !strings.HasPrefix(string(d), "ba7816bf") {
		t.Error(d)
	}
}
