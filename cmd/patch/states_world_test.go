package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sgpatch/patcher/patchset"
)

// fileState is how one file of the set stands, as an operator would say it.
type fileState string

const (
	pristine  fileState = "pristine"
	held      fileState = "held"
	partial   fileState = "partial" // one of its two hunks
	elsewhere fileState = "edited elsewhere"
	inHunk    fileState = "edited in a hunk"
	other     fileState = "other release"
	missing   fileState = "missing"
)

var fileStates = []fileState{pristine, held, partial, elsewhere, inHunk, other, missing}

// recordState is how records and entry stand beside the code.
type recordState string

const (
	kept      recordState = "as apply left them"
	noReceipt recordState = "receipt missing"
	strange   recordState = "receipt of another machine"
	layer     recordState = "no .sgpatch" // an image layer: code and entry came, the records did not
	alone     recordState = ".sgpatch alone"
	never     recordState = "none"
)

var recordStates = []recordState{kept, noReceipt, strange, layer, alone, never}

func (r recordState) receipt() bool { return r == kept || r == strange || r == alone }
func (r recordState) entry() bool   { return r != alone && r != never }

// world is one state of an install.
type world struct {
	files   [2]fileState
	noDir   bool // the package's directory is gone, and the files with it
	records recordState
	entry   string // what an editor did to the entry: a key of entryEdits
}

func (w world) String() string {
	if w.noDir {
		return fmt.Sprintf("no directory, records %s", w.records)
	}
	return fmt.Sprintf("%s + %s, records %s %s", w.files[0], w.files[1], w.records, w.entry)
}

// any says whether a file is in one of these states.
func (w world) any(states ...fileState) bool {
	return slices.ContainsFunc(w.files[:], func(s fileState) bool { return slices.Contains(states, s) })
}

func (w world) both(s fileState) bool { return w.files == [2]fileState{s, s} }

// entryEdits are what happens to an entry alone.
var entryEdits = map[string]func(string) string{
	"removed":        func(string) string { return "" },
	"set to 0":       func(text string) string { return strings.Replace(text, `"1")`, `"0")`, 1) },
	"marker damaged": func(text string) string { return strings.Replace(text, "# <<< sgpatch <<<", "#", 1) },
}

// code are the files that the set two changes.
var code = [2]string{"sglang/a.py", "sglang/b.py"}

// contents is a tree in memory, by paths from its root.
type contents map[string]string

// fixture is what every world is laid down from.
type fixture struct {
	dir, root, sets string
	listed          bool
	plain           map[string]contents // by release
	texts           [2]map[fileState]string
	later           [2]string   // of 0.5.10, patched
	applied         [2]contents // an install after apply: here, and as it came from another machine
}

// newFixture makes the contents. listed says whether the release table knows them.
func newFixture(t *testing.T, listed bool) *fixture {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{dir: dir, root: filepath.Join(dir, "here"), sets: filepath.Join(dir, "sets"), listed: listed, plain: map[string]contents{}}
	if err := os.CopyFS(f.sets, os.DirFS("testdata/states/sets")); err != nil {
		t.Fatal(err)
	}
	for _, release := range []string{"0.5.9", "0.5.10"} {
		src := filepath.Join("testdata/states", release)
		f.plain[release] = pickUp(t, src)
		if !listed {
			continue
		}
		if err := addTable(filepath.Join(f.sets, "two"), src, release, "v1"); err != nil {
			t.Fatal(err)
		}
	}
	f.makeTexts(t)
	f.applied[0] = f.applyAt(t, f.root)
	f.applied[1] = f.applyAt(t, filepath.Join(dir, "there"))
	f.applied[1].askedThere(t)
	return f
}

// makeTexts writes down each file in each state. What is foreign in them is a
// line at the end, or a word in a line of ours.
func (f *fixture) makeTexts(t *testing.T) {
	t.Helper()
	for i, path := range code {
		raw, err := os.ReadFile(filepath.Join(f.sets, "two/v1", strings.TrimSuffix(filepath.Base(path), ".py")+".diff"))
		if err != nil {
			t.Fatal(err)
		}
		diffs, err := patchset.Parse(path, raw)
		if err != nil {
			t.Fatal(err)
		}
		d := diffs[0]
		first := patchset.File{Path: d.Path, Hunks: d.Hunks[:1]}
		put := func(d patchset.File, text string) string {
			got, err := d.Apply([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			return string(got)
		}
		before, next := f.plain["0.5.9"][path], f.plain["0.5.10"][path]
		whole := put(d, before)
		f.later[i] = put(d, next)
		f.texts[i] = map[fileState]string{pristine: before, held: whole, partial: put(first, before), elsewhere: whole + foreignLine, other: next,
			inHunk: strings.NewReplacer("not FORCED", "not OPEN", "return MOST_WAYS", "return 2 * MOST_WAYS").Replace(whole)}
	}
}

const foreignLine = "\n\nHOUSE_RULE = 3\n"

// applyAt has the program itself make an install at root, and takes it away.
func (f *fixture) applyAt(t *testing.T, root string) contents {
	t.Helper()
	layDown(t, root, f.plain["0.5.9"])
	if r := f.do(t, root, "apply", "two", "--reason", "first"); r.Exit != 0 {
		t.Fatal(r.Error)
	}
	all := pickUp(t, root)
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	return all
}

// askedThere writes an interpreter that is not on this machine into the receipt.
func (c contents) askedThere(t *testing.T) {
	t.Helper()
	const receipt = ".sgpatch/receipt.json"
	var doc map[string]any
	if err := json.Unmarshal([]byte(c[receipt]), &doc); err != nil {
		t.Fatal(err)
	}
	doc["python"] = map[string]any{"path": "/opt/elsewhere/bin/python", "executable": "/opt/elsewhere/bin/python3.12", "prefix": "/opt/elsewhere", "version": "3.12.4", "tag": "cpython-312", "size": 1, "mtime": 1}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	c[receipt] = string(text)
}

// tree is a world as files.
func (f *fixture) tree(w world) contents {
	all := contents{}
	from := f.applied[0]
	if w.records == strange || w.records == layer || w.records == alone {
		from = f.applied[1]
	}
	for path, text := range from {
		record := strings.HasPrefix(path, ".sgpatch/")
		switch {
		case record && (w.records == never || w.records == layer), record && w.records == noReceipt && filepath.Base(path) == "receipt.json":
		case path == "sitecustomize.py" && !w.records.entry():
		case w.noDir && strings.HasPrefix(path, "sglang/"):
		default:
			all[path] = text
		}
	}
	if edit := entryEdits[w.entry]; edit != nil {
		if all["sitecustomize.py"] = edit(all["sitecustomize.py"]); all["sitecustomize.py"] == "" {
			delete(all, "sitecustomize.py")
		}
	}
	if w.noDir {
		return all
	}
	for i, s := range w.files {
		all[code[i]] = f.texts[i][s]
		if s == missing {
			delete(all, code[i])
		}
	}
	if w.both(other) {
		all["sglang/version.py"] = f.plain["0.5.10"]["sglang/version.py"]
	}
	return all
}
