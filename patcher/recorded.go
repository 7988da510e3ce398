package patcher

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"sgpatch/patcher/install"
	"sgpatch/patcher/internal/txn"
	"sgpatch/patcher/patchset"
)

// Recorded is the install at a root as its receipt describes it; no interpreter
// is asked. python "" accepts the receipt of any.
func Recorded(root, python string) (install.Install, bool) {
	text, _, err := txn.Read(root)
	if err != nil || text == nil {
		return install.Install{}, false
	}
	r, err := parseReceipt(root, text)
	if err != nil || (python != "" && !install.SamePython(python, r.Python.Path) && !install.SamePython(python, r.Python.Executable)) {
		return install.Install{}, false
	}
	in := install.Install{Root: root, Python: r.Python.Path, Release: install.Release(root), Site: r.Entry.Path, HasSite: r.Entry.Path != ""}
	in.Answer.Tag, in.Answer.Prefix = r.Python.Tag, r.Python.Prefix
	in.Answer.Magic, _ = hex.DecodeString(r.Python.Magic)
	if in.Answer.PycachePrefix = os.Getenv("PYTHONPYCACHEPREFIX"); in.Answer.PycachePrefix == "" {
		in.Answer.PycachePrefix = r.Python.PycachePrefix
	}
	in.Answer.Site, in.Answer.SiteLoaded = r.Entry.Path, true
	return in, true
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
		if err != nil || st.Size() != p.Size || st.ModTime().UnixNano() != p.Mtime {
			return p.Executable + " is not the interpreter that apply asked"
		}
	}
	if e := r.Entry; e.Path != "" {
		real, err := install.Resolve(e.Path, s.root)
		if (err != nil && !errors.Is(err, fs.ErrNotExist)) || real != e.Real || patchset.DigestOf(s.Entry) != e.Digest {
			return e.Path + " is not as apply left it"
		}
	}
	return ""
}
