package patcher

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"sgpatch/patcher/block"
	"sgpatch/patcher/install"
	"sgpatch/patcher/internal/txn"
	"sgpatch/patcher/patchset"
)

// Site is an install together with what is in place in it: a reading of one
// moment.
type Site struct {
	In       install.Install
	Receipt  *Receipt
	Pending  string // the command whose commit was interrupted, "" if none was
	Block    block.Block
	BlockErr error  // the block is damaged
	Entry    []byte // the sitecustomize, nil if there is none
	Quick    bool   // judge by digests alone and leave the hunks out
	Brief    bool   // leave out the hunks of contents that a digest vouches for
	root     string // real path of the root, its name in blocks and receipts

	known     []patchset.Set
	files     map[string]*file
	read      int64  // bytes of files
	recorded  bool   // there is a receipt, or a journal
	stamp     string // receipt and journal, to see that neither moved meanwhile
	diffs     map[patchset.Digest][]patchset.File
	entryAt   string // real path of the sitecustomize
	entryTime int64  // its modification time, as that of a file
	near      string // stamps of the other roots in its block
	profiles  func() []profile
}

type file struct {
	path  string // from the root
	data  []byte
	mtime int64           // of this very content, nanoseconds since 1970
	have  patchset.Digest // "" if there is no such file
	err   error
}

// Bounds of what is read of files that are to be patched: of one, and of all.
const (
	maxSource  = 32 << 20
	maxSources = 64 << 20
)

// restless is how often a reader looks again, 5 ms apart, while commits go
// through: two seconds, which the slowest disk does not need for one.
const restless = 400

// Open reads what is in place. It writes nothing. The error is a *DamagedError,
// or one of the file system's.
func Open(in install.Install, known []patchset.Set) (*Site, error) {
	for range restless {
		s, err := openOnce(in, known)
		if err != nil || (!s.Moved() && (s.Pending == "" || !txn.Busy(in.Root))) {
			return s, err
		}
		time.Sleep(5 * time.Millisecond) // a commit went through while we read; half of it is never reported as whole
	}
	return nil, &BusyError{Path: in.Root, Wait: restless * 5 * time.Millisecond}
}

func openOnce(in install.Install, known []patchset.Set) (*Site, error) {
	read, err := readRecords(in.Root)
	if err != nil {
		return nil, err
	}
	return newSite(in, known, read), nil
}

// records is what stands in .sgpatch.
type records struct {
	receipt *Receipt
	found   bool   // there is a receipt, or a journal
	journal []byte // nil if there is none
	stamp   string
}

func readRecords(root string) (records, error) {
	r := records{stamp: txn.Stamp(root)}
	receipt, journal, err := txn.Read(root)
	if err != nil {
		return r, &DamagedError{filepath.Join(root, txn.Folder), err}
	}
	r.found, r.journal = receipt != nil || journal != nil, journal
	r.receipt, err = parseReceipt(root, receipt)
	return r, err
}

func newSite(in install.Install, known []patchset.Set, read records) *Site {
	s := &Site{In: in, known: known, files: map[string]*file{}, diffs: map[patchset.Digest][]patchset.File{}, stamp: read.stamp, recorded: read.found, Receipt: read.receipt, profiles: sync.OnceValue(readProfiles)}
	if read.journal != nil {
		if s.Pending = txn.Interrupted(read.journal); s.Pending == "" {
			s.Pending = "a command"
		}
	}
	var err error
	if s.root, err = filepath.EvalSymlinks(in.Root); err != nil {
		s.root = in.Root
	}
	s.readEntry()
	// all at once: what is read later may be of another moment
	for _, t := range s.Receipt.Files {
		s.file(t.Path)
	}
	for _, k := range known {
		for _, p := range k.Paths() {
			s.file(p)
		}
	}
	return s
}

// readEntry reads the sitecustomize and the block in it.
func (s *Site) readEntry() {
	if s.In.Site == "" {
		return
	}
	s.entryAt, _ = install.Resolve(s.In.Site, s.root)
	text, mtime, err := txn.ReadAged(s.In.Site, maxSource)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.BlockErr = err
		}
		return
	}
	s.Entry, s.entryTime = text, mtime
	s.Block, s.BlockErr = block.Get(text)
	s.near = s.neighbours()
}

// neighbours changes whenever a commit begins or ends in a root that shares the
// sitecustomize: whether that root stands behind its entries is part of a plan.
func (s *Site) neighbours() string {
	var all strings.Builder
	for _, root := range s.Block.Roots() {
		if root != s.root {
			all.WriteString(txn.Stamp(root))
		}
	}
	return all.String()
}

// file reads a file of the install once.
func (s *Site) file(path string) *file {
	if f, ok := s.files[path]; ok {
		return f
	}
	f := &file{path: path}
	s.files[path] = f
	data, mtime, err := txn.ReadAged(s.abs(path), maxSource)
	if s.read += int64(len(data)); s.read > maxSources {
		data, err = nil, fmt.Errorf("with it the files are larger than %d MiB together", maxSources>>20)
	}
	switch {
	case err == nil:
		f.data, f.mtime, f.have = data, mtime, patchset.DigestOf(data)
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
		f.err = err
	}
	return f
}

func (s *Site) abs(path string) string { return filepath.Join(s.In.Root, filepath.FromSlash(path)) }

// Root is the install's real root, its name in blocks and receipts.
func (s *Site) Root() string { return s.root }

// Known returns the set of that id that this program, or --patches, brings.
func (s *Site) Known(id string) (patchset.Set, bool) {
	i := slices.IndexFunc(s.known, func(k patchset.Set) bool { return k.ID == id })
	if i < 0 {
		return patchset.Set{}, false
	}
	return s.known[i], true
}

// Moved says whether a receipt or journal is not the one that was read.
func (s *Site) Moved() bool {
	return txn.Stamp(s.In.Root) != s.stamp
}

// diff returns the files of an enabled set's variant as they were applied.
func (s *Site) diff(e Enabled) ([]patchset.File, error) {
	if e.Diff == "" {
		return nil, nil
	}
	if d, ok := s.diffs[e.Diff]; ok {
		return d, nil
	}
	if k, ok := s.Known(e.ID); ok {
		if v, ok := k.Variant(e.Variant); ok && patchset.DigestOf(v.Text) == e.Diff {
			s.diffs[e.Diff] = v.Files
			return v.Files, nil
		}
	}
	text, err := txn.Object(s.In.Root, string(e.Diff))
	if err != nil {
		return nil, &DamagedError{filepath.Join(s.In.Root, txn.Folder), fmt.Errorf("the diff of %s: %w", e.ID, err)}
	}
	files, err := patchset.Parse(e.ID+"/"+e.Variant, text)
	if err != nil {
		return nil, &DamagedError{filepath.Join(s.In.Root, txn.Folder), err}
	}
	s.diffs[e.Diff] = files
	return files, nil
}

// touches returns the hunks of an enabled set for one path.
func (s *Site) touches(e Enabled, path string) (patchset.File, bool, error) {
	files, err := s.diff(e)
	if err != nil {
		return patchset.File{}, false, err
	}
	f, ok := fileOf(files, path)
	return f, ok, nil
}

func fileOf(files []patchset.File, path string) (patchset.File, bool) {
	i := slices.IndexFunc(files, func(f patchset.File) bool { return f.Path == path })
	if i < 0 {
		return patchset.File{}, false
	}
	return files[i], true
}
