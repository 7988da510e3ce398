package patcher

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"sgpatch/patcher/block"
	"sgpatch/patcher/install"
	"sgpatch/patcher/internal/txn"
)

// Records of another user's are that user's word. What root does by them is
// held to what that user could do alone: write in the install, and to files of
// theirs elsewhere.

// mayWrite judges a plan that was made from records.
func (s *Site) mayWrite(owner uint32, p *Plan) error {
	for _, w := range p.Writes {
		if w.Rel == "" || !s.recorded || s.could(owner, w.Path) {
			continue
		}
		folder := filepath.Join(s.In.Root, txn.Folder)
		return &RefusedError{Code: "not-permitted", Path: p.Names[w.Path], Message: fmt.Sprintf("%s leads out of the install to %s, which does not belong to user %d, to whom the records in %s do", p.Names[w.Path], w.Path, owner, folder), Hint: "look at these records, then vouch for them: chown -R root " + Quote(folder)}
	}
	return nil
}

// could says whether the owner of the records could change a file, too.
func (s *Site) could(owner uint32, path string) bool {
	if os.Geteuid() != 0 || owner == 0 || s.inside(path) {
		return true
	}
	st, err := os.Lstat(path)
	if err != nil {
		st, err = os.Lstat(filepath.Dir(path))
	}
	return err == nil && st.Sys().(*syscall.Stat_t).Uid == owner
}

// mayPutBack says whether a journal may give a file the content of digest old.
func (s *Site) mayPutBack(owner uint32, rel, path, old string) error {
	switch {
	case s.could(owner, path):
		return nil
	case rel != "":
		return fmt.Errorf("it does not belong to user %d, to whom the journal does", owner)
	}
	return s.onlyBlock(path, old)
}

// onlyBlock demands that a sitecustomize differs from what a journal puts in
// its place by our block alone, and by names in it that are known here: it may
// be the system's, and the journal a user's.
func (s *Site) onlyBlock(path, old string) error {
	now, err := txn.ReadFile(path, maxSource)
	if err != nil {
		return err
	}
	var was []byte
	if old != "" {
		if was, err = txn.Object(s.In.Root, old); err != nil {
			return err
		}
	}
	here, err := block.Get(now)
	if err != nil {
		return err
	}
	there, err := block.Get(was)
	if err != nil {
		return err
	}
	if a, err := block.Set(now, block.Block{}); err != nil {
		return err
	} else if b, err := block.Set(was, block.Block{}); err != nil || !bytes.Equal(a, b) {
		return errors.New("more than the block of sgpatch would change in it")
	}
	for _, e := range there.Entries {
		if !s.knows(e.Name) && !slices.ContainsFunc(here.Entries, func(h block.Entry) bool { return h.Name == e.Name }) {
			return fmt.Errorf("no known set has an entry %s", e.Name)
		}
	}
	return nil
}

// realNames names compiled files without the links on their way, each of which must
// belong to who owns what it leads to: what is removed is never somebody else's.
func (s *Site) realNames(stale []string) ([]string, error) {
	dirs := map[string]string{}
	var all []string
	for _, p := range stale {
		dir := filepath.Dir(p)
		if _, ok := dirs[dir]; !ok {
			real, err := install.Trusted(dir)
			if err != nil {
				return nil, err
			}
			dirs[dir] = real
		}
		all = append(all, filepath.Join(dirs[dir], filepath.Base(p)))
	}
	return all, nil
}
