package patchset

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Limits of one set. A hunk of a few bytes takes thirty times as much memory.
const (
	maxSet      = 8 << 20 // bytes of all its files
	maxSetHunks = 100_000
	maxVariants = 64
	maxFiles    = 4096    // files that its variants change, and diffs
	maxEntries  = 10_000  // in one folder
	maxTable    = 4 << 20 // bytes
	maxCheck    = 1 << 20 // bytes
)

// Load reads the set that fsys holds at its root and checks it completely. What
// is wrong with its data is a *DataError; a missing manifest is fs.ErrNotExist.
func Load(fsys fs.FS) (Set, error) {
	return LoadNamed(fsys, "")
}

// LoadNamed is Load for a set whose id is known, as from the name of its
// folder: the manifest must name the same one, if id is not "".
func LoadNamed(fsys fs.FS, id string) (Set, error) {
	return loader{fsys: fsys, id: id, left: maxSet}.load()
}

// Reload is LoadNamed for a set that this program ships, which LoadNamed has found
// sound in a test, and whose rows were tried when they were made: what cannot be
// found any more is not looked for at every start. The set is Tried.
func Reload(fsys fs.FS, id string) (Set, error) {
	s, err := loader{fsys: fsys, id: id, left: maxSet, sound: true}.load()
	s.Tried = true
	return s, err
}

func (l loader) load() (Set, error) {
	id := l.id
	text, err := l.read("manifest.toml", maxManifest)
	if err != nil {
		return Set{}, err
	}
	s, err := parseManifest(text, l.sound)
	if err != nil {
		return Set{}, l.at("manifest.toml", err)
	}
	if id != "" && s.ID != id {
		return Set{}, l.at("manifest.toml", bad("the id is %s, the folder's name is %s", s.ID, id))
	}
	l.id = s.ID
	if err := l.variants(&s); err != nil {
		return Set{}, err
	}
	if len(s.Env) == 0 && len(s.Variants) == 0 {
		return Set{}, l.at("manifest.toml", bad("the set has neither an environment entry nor a variant"))
	}
	if err := l.extras(&s); err != nil {
		return Set{}, err
	}
	return s, nil
}

// loader reads the files of one set and keeps its limits.
type loader struct {
	fsys  fs.FS
	id    string // for messages
	left  int64  // bytes that may still be read
	files int    // that the variants change, or diffs
	hunks int
	sound bool // the checks were made before
}

func (l *loader) name(file string) string { return path.Join(l.id, file) }

// at names the file in an error that does not.
func (l *loader) at(file string, err error) error {
	var d *DataError
	if errors.As(err, &d) && d.File == "" {
		d.File = l.name(file)
	}
	return err
}

// read returns the content of a regular file up to a limit.
func (l *loader) read(file string, limit int64) ([]byte, error) {
	f, err := l.fsys.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.name(file), err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.name(file), err)
	}
	if !info.Mode().IsRegular() {
		return nil, l.at(file, bad("not a regular file"))
	}
	// The size that Stat tells is a hint and not believed: the file may grow.
	var buf bytes.Buffer
	buf.Grow(int(min(info.Size(), limit)) + bytes.MinRead)
	if _, err := buf.ReadFrom(io.LimitReader(f, limit+1)); err != nil {
		return nil, fmt.Errorf("%s: %w", l.name(file), err)
	}
	text := buf.Bytes()
	if int64(len(text)) > limit {
		return nil, l.at(file, bad("larger than %d KiB", limit>>10))
	}
	if l.left -= int64(len(text)); l.left < 0 {
		return nil, l.at(file, bad("the files of the set are larger than %d MiB", maxSet>>20))
	}
	return text, nil
}

// variants reads the folders that hold diffs. Others are not the set's.
func (l *loader) variants(s *Set) error {
	entries, err := l.list(".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || !l.isFolder(e) {
			continue
		}
		v, err := l.variant(e.Name())
		if err != nil {
			return err
		}
		if v.Files == nil {
			continue
		}
		if len(s.Variants) == maxVariants {
			return l.at(e.Name(), bad("more than %d variants", maxVariants))
		}
		s.Variants = append(s.Variants, v)
	}
	return nil
}

// list returns the entries of a folder by name.
func (l *loader) list(folder string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(l.fsys, folder)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.name(folder), err)
	}
	if len(entries) > maxEntries {
		return nil, l.at(folder, bad("more than %d entries", maxEntries))
	}
	return entries, nil
}

func (l *loader) isFolder(e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.IsDir()
	}
	info, err := fs.Stat(l.fsys, e.Name())
	return err == nil && info.IsDir()
}

// variant reads the diffs of a folder; without one the variant has no files.
func (l *loader) variant(folder string) (Variant, error) {
	v := Variant{Name: folder}
	entries, err := l.list(folder)
	if err != nil {
		return v, err
	}
	from := map[string]string{} // path: the diff that changes it
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".diff") {
			continue
		}
		if !isVersion(folder) {
			return v, l.at(folder, bad("not the name of a variant: letters, digits, dots, dashes"))
		}
		if err := l.diff(&v, path.Join(folder, e.Name()), from); err != nil {
			return v, err
		}
	}
	slices.SortFunc(v.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return v, nil
}

// diff adds the files of one diff to the variant.
func (l *loader) diff(v *Variant, file string, from map[string]string) error {
	text, err := l.read(file, maxDiff)
	if err != nil {
		return err
	}
	files, err := Parse(l.name(file), text)
	if err != nil {
		return err
	}
	for _, f := range files {
		if other, twice := from[f.Path]; twice {
			return l.at(file, bad("%s is in %s already", f.Path, other))
		}
		from[f.Path] = file
		l.hunks += len(f.Hunks)
	}
	if l.hunks > maxSetHunks {
		return l.at(file, bad("the set has more than %d hunks", maxSetHunks))
	}
	if l.files += len(files); l.files > maxFiles {
		return l.at(file, bad("the set changes more than %d files", maxFiles))
	}
	v.Files = append(v.Files, files...)
	v.Text = append(v.Text, text...)
	return nil
}

// extras reads what a set may have besides: the release table, the check.
func (l *loader) extras(s *Set) error {
	text, err := l.read("releases.tsv", maxTable)
	if err == nil {
		s.Rows, err = parseTable(text, *s, l.sound)
		err = l.at("releases.tsv", err)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.Check, err = l.read("check.py", maxCheck)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
