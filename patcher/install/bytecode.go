package install

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Bytecode lists the compiled files, of any interpreter and optimisation level,
// that Python may run instead of a source: beside it and under the prefix.
func Bytecode(source, prefix string) []string {
	stem := strings.TrimSuffix(filepath.Base(source), ".py")
	dirs := []string{filepath.Join(filepath.Dir(source), "__pycache__")}
	if prefix != "" {
		dirs = append(dirs, filepath.Join(prefix, filepath.Dir(source)))
	}
	var all []string
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if rest, ok := strings.CutPrefix(e.Name(), stem+"."); ok && strings.HasSuffix(rest, ".pyc") {
				all = append(all, filepath.Join(dir, e.Name()))
			}
		}
	}
	return all
}

// Cached is the file that this interpreter would run for a source.
func (a Answer) Cached(source string) string {
	name := strings.TrimSuffix(filepath.Base(source), ".py") + "." + a.Tag
	if a.Optimize != "" && a.Optimize != "0" {
		name += ".opt-" + a.Optimize
	}
	dir := filepath.Join(filepath.Dir(source), "__pycache__")
	if a.PycachePrefix != "" {
		dir = filepath.Join(a.PycachePrefix, filepath.Dir(source))
	}
	return filepath.Join(dir, name+".pyc")
}

// Use is what Python makes of a compiled file (PEP 552).
type Use int

const (
	Ignored   Use = iota // absent, or its header does not fit: the source is compiled
	Checked              // its header vouches for the source
	Unchecked            // Python runs it without a look at the source
)

// HowUsed applies the interpreter's own header test. magic nil accepts any.
func HowUsed(pyc, source string, magic []byte) (Use, error) {
	f, err := open(pyc)
	if errors.Is(err, fs.ErrNotExist) {
		return Ignored, nil
	}
	if err != nil {
		return Ignored, err
	}
	defer f.Close()
	var head [16]byte
	if n, _ := f.Read(head[:]); n < len(head) {
		return Ignored, nil
	}
	if magic != nil && string(head[:4]) != string(magic) {
		return Ignored, nil
	}
	switch binary.LittleEndian.Uint32(head[4:]) {
	case 0:
		st, err := os.Stat(source)
		if err != nil {
			return Ignored, err
		}
		if binary.LittleEndian.Uint32(head[8:]) == uint32(st.ModTime().Unix()) && binary.LittleEndian.Uint32(head[12:]) == uint32(st.Size()) {
			return Checked, nil
		}
	case 1:
		return Unchecked, nil
	}
	return Ignored, nil // a checked hash: Python compares it with the source itself
}

// Shadow is a module that this interpreter would import in place of a source: a
// package or an extension of the same name beside it, "" if there is none.
func (a Answer) Shadow(source string) string {
	stem := strings.TrimSuffix(source, ".py")
	if isFile(filepath.Join(stem, "__init__.py")) {
		return filepath.Join(stem, "__init__.py")
	}
	for _, suffix := range a.Extensions { // those of other interpreters are not looked at
		if isFile(stem + suffix) {
			return stem + suffix
		}
	}
	return ""
}
