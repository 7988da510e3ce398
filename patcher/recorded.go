package patcher

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sgpatch/patcher/install"
	"sgpatch/patcher/internal/txn"
	"sgpatch/patcher/patchset"
)

// OpenRecorded reads what is in place at a root as its receipt describes it; no
// interpreter is asked. python "" accepts the receipt of any. It is nil if there
// is no such receipt, or a damaged one.
func OpenRecorded(root, python string) *Site {
	for range restless {
		read, err := readRecords(root)
		if err != nil || !read.found {
			return nil
		}
		in, ok := read.receipt.install(root, python)
		if !ok {
			return nil
		}
		if s := newSite(in, nil, read); !s.Moved() && (s.Pending == "" || !txn.Busy(root)) {
			return s
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// RecordedEntry is the sitecustomize that the receipt of a root names, "" if
// there is none. A receipt that came from another root names that one's file,
// which is not here, or is a neighbour's.
func RecordedEntry(root string) string {
	read, err := readRecords(root)
	if err != nil {
		return ""
	}
	abs, err := filepath.Abs(root)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil || abs != read.receipt.Root {
		return ""
	}
	return read.receipt.Entry.Path
}

func (r *Receipt) install(root, python string) (install.Install, bool) {
	if r.Root == "" || (python != "" && !install.SamePython(python, r.Python.Path) && !install.SamePython(python, r.Python.Executable)) {
		return install.Install{}, false
	}
	in := install.Install{Root: root, Python: r.Python.Path, Release: install.Release(root), Site: r.Entry.Path, HasSite: r.Entry.Path != ""}
	in.Answer.Tag, in.Answer.Prefix, in.Answer.Extensions = r.Python.Tag, r.Python.Prefix, r.Python.Extensions
	in.Answer.Magic, _ = hex.DecodeString(r.Python.Magic)
	if in.Answer.PycachePrefix = os.Getenv("PYTHONPYCACHEPREFIX"); in.Answer.PycachePrefix == "" {
		in.Answer.PycachePrefix = r.Python.PycachePrefix
	}
	in.Answer.Site, in.Answer.SiteLoaded = r.Entry.Path, true
	return in, true
}

// sameTime compares a file's time with a recorded one. An image's layers keep whole
// seconds: an interpreter that came with the same build has lost the rest of its
// time when the image is pulled.
func sameTime(now time.Time, then int64) bool {
	at := now.UnixNano()
	return at == then || at == then-then%int64(time.Second)
}

// Stale says why what apply recorded of interpreter, root and sitecustomize is
// not to be relied on any more, "" if it is.
func (s *Site) Stale() string {
	r := s.Receipt
	if r.Root != s.root {
		return fmt.Sprintf("the receipt is of %s, not of %s", r.Root, s.root)
	}
	if p := r.Python; p.Executable != "" {
		st, err := os.Stat(p.Executable)
		if err != nil || st.Size() != p.Size || !sameTime(st.ModTime(), p.Mtime) {
			return p.Executable + " is not the interpreter that apply asked"
		}
	}
	if e := r.Entry; e.Path != "" {
		if s.entryAt != e.Real || patchset.DigestOf(s.Entry) != e.Digest {
			return e.Path + " is not as apply left it"
		}
		if pyc := s.entryBytecode(); pyc != "" {
			return pyc + " may be run instead of " + e.Path
		}
	}
	return s.cameBefore()
}

// entryBytecode is compiled code that Python would run in place of the entry's
// file without having compiled it from there, "" if there is none.
func (s *Site) entryBytecode() string {
	pyc := s.In.Answer.Cached(s.In.Site)
	if len(hides(s.In.Site, []string{pyc}, s.Receipt.names())) == 0 {
		return ""
	}
	return pyc
}

// cameBefore says what a Python would import now in place of the sitecustomize, or
// of the sglang, that it imported when apply asked it.
func (s *Site) cameBefore() string {
	endings := slices.Concat([]string{"/__init__.py"}, s.In.Answer.Extensions, []string{".py", ".pyc"})
	for _, module := range []struct{ name, real string }{{"sitecustomize", s.entryAt}, {"sglang", realOf(s.abs("sglang/__init__.py"))}} {
		if path := first(s.Receipt.Python.SysPath, module.name, endings); path != "" && module.real != "" && realOf(path) != module.real {
			return path + " comes first now"
		}
	}
	return ""
}

// first is the file that a module would be imported from, "" if there is none.
func first(dirs []string, name string, endings []string) string {
	for _, dir := range dirs {
		for _, ending := range endings {
			if path := filepath.Join(dir, name+ending); install.Exists(path) {
				return path
			}
		}
	}
	return ""
}

func realOf(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	return real
}
