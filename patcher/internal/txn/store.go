package txn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	receiptName = "receipt.json"
	journalName = "journal.json"
	objectsName = "objects"
	lockName    = "lock"
)

// Read returns the receipt and the journal of a root, nil where there is none.
// It creates nothing and takes no lock.
func Read(root string) (receipt, journal []byte, err error) {
	fd, err := openRecords(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(fd)
	if receipt, err = optional(readAt(fd, receiptName, maxRecord)); err != nil {
		return nil, nil, inFolder(root, err)
	}
	if journal, err = optional(readAt(fd, journalName, maxRecord)); err != nil {
		return nil, nil, inFolder(root, err)
	}
	return receipt, journal, nil
}

// Stamp changes whenever a commit begins or ends in a root. Every record is a
// new file, so their identities tell.
func Stamp(root string) string {
	var all []byte
	for _, name := range []string{receiptName, journalName} {
		var st unix.Stat_t
		if unix.Stat(root+"/"+Folder+"/"+name, &st) == nil {
			all = fmt.Appendf(all, "%d %d %d %d", st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec)
		}
		all = append(all, ';')
	}
	return string(all)
}

// Busy says whether a command is at work in a root at this moment.
func Busy(root string) bool {
	fd, err := unix.Open(filepath.Join(root, Folder, lockName), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return errors.Is(unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Object returns a replaced content by its digest, checked.
func Object(root, digest string) ([]byte, error) {
	fd, err := openRecords(root)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return object(fd, root, digest)
}

func object(dirfd int, root, digest string) ([]byte, error) {
	if !isDigest(digest) {
		return nil, fmt.Errorf("%s: %q is not a digest", filepath.Join(root, Folder), digest)
	}
	odir, err := unix.Openat(dirfd, objectsName, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(root, Folder, objectsName), Err: err}
	}
	defer unix.Close(odir)
	data, err := readAt(odir, digest, maxFile)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: filepath.Join(root, Folder, objectsName, digest), Err: errors.Unwrap(err)}
	}
	if Digest(data) != digest {
		return nil, fmt.Errorf("%s: the content does not match its digest", filepath.Join(root, Folder, objectsName, digest))
	}
	return data, nil
}

func isDigest(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

func inFolder(root string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) && !filepath.IsAbs(pe.Path) {
		pe.Path = filepath.Join(root, Folder, pe.Path)
	}
	return err
}

func optional(b []byte, err error) ([]byte, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// openRecords opens <root>/.sgpatch; a link in its place is refused.
func openRecords(root string) (int, error) {
	return recordsAt(unix.AT_FDCWD, filepath.Join(root, Folder), root)
}

// recordsAt opens the folder by a name that starts from a directory.
func recordsAt(dirfd int, name, root string) (int, error) {
	path := filepath.Join(root, Folder)
	fd, err := unix.Openat(dirfd, name, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		if st, e := os.Lstat(path); e == nil && !st.IsDir() {
			return -1, &fs.PathError{Op: "open", Path: path, Err: errors.New("is not a directory of its own; sgpatch keeps no records behind a link")}
		}
	}
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// Dir is the locked records of one root.
type Dir struct {
	root   string
	rootfd int
	fd     int
	lock   *os.File
	kept   originals // of the commit at work
	gone   bool      // purged
}

// Lock creates <root>/.sgpatch if need be and takes its lock, waiting at most
// wait. The lock goes with the process, whatever ends it. No link may be in
// root: its owner could have it lead to the records of another install.
func Lock(ctx context.Context, root string, wait time.Duration) (*Dir, error) {
	deadline := time.Now().Add(wait)
	for {
		d, err := lockOnce(ctx, root, deadline, wait)
		if err != nil || d != nil {
			return d, err
		}
	}
}

// lockOnce returns nil, nil if the folder was purged while it waited.
func lockOnce(ctx context.Context, root string, deadline time.Time, wait time.Duration) (*Dir, error) {
	rfd, err := openDir(root)
	if err != nil {
		return nil, err
	}
	fd, err := openOrMake(rfd, root)
	if err != nil {
		unix.Close(rfd)
		return nil, err
	}
	lfd, err := openLock(fd)
	if err != nil {
		unix.Close(rfd)
		unix.Close(fd)
		if errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENXIO) {
			err = ErrNoFile
		}
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(root, Folder, lockName), Err: err}
	}
	d := &Dir{root: root, rootfd: rfd, fd: fd, lock: os.NewFile(uintptr(lfd), lockName), kept: originals{mode: 0o644}}
	if err := flock(ctx, lfd, deadline); err != nil {
		d.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &BusyError{Path: root, Wait: wait}
		}
		return nil, &fs.PathError{Op: "lock", Path: filepath.Join(root, Folder, lockName), Err: err}
	}
	var held, now unix.Stat_t
	if unix.Fstat(lfd, &held) != nil || unix.Fstatat(rfd, Folder+"/"+lockName, &now, unix.AT_SYMLINK_NOFOLLOW) != nil || held.Ino != now.Ino || held.Dev != now.Dev {
		d.Close()
		return nil, nil
	}
	return d, nil
}

func openOrMake(rfd int, root string) (int, error) {
	fd, err := recordsAt(rfd, Folder, root)
	if !errors.Is(err, fs.ErrNotExist) {
		return fd, err
	}
	path := filepath.Join(root, Folder)
	if err := unix.Mkdirat(rfd, Folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return -1, &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	if fd, err = recordsAt(rfd, Folder, root); err != nil {
		return -1, err
	}
	owner(rfd).give(fd)
	if err := unix.Fchmod(fd, 0o755); err != nil { // whatever the umask
		unix.Close(fd)
		return -1, &fs.PathError{Op: "chmod", Path: path, Err: err}
	}
	var s syncs
	defer s.close()
	err = putAt(fd, ".gitignore", []byte("*\n"), &s)
	if err == nil {
		s.add(rfd) // without its directory on disk, no journal in it is
		err = s.wait()
	}
	if err != nil {
		unix.Close(fd)
		return -1, inFolder(root, err)
	}
	return fd, nil
}

// flock polls, because a blocking flock knows no deadline.
func flock(ctx context.Context, fd int, deadline time.Time) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || errors.Is(err, unix.EINTR) {
			if err == nil {
				return ctx.Err()
			}
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}

// LockBeside locks the directory of a file that several roots share, so that no
// lock file is left beside it. The function it returns unlocks.
func LockBeside(ctx context.Context, path string, wait time.Duration) (func(), error) {
	dir := filepath.Dir(path)
	fd, err := openDir(dir)
	if err != nil {
		return nil, err
	}
	err = flock(ctx, fd, time.Now().Add(wait))
	switch {
	case err == nil, errors.Is(err, unix.EBADF), errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOLCK):
		// network file systems may not lock directories; the commit compares digests besides
		return func() { unix.Close(fd) }, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		unix.Close(fd)
		return nil, &BusyError{Path: path, Wait: wait}
	}
	unix.Close(fd)
	return nil, &fs.PathError{Op: "lock", Path: dir, Err: err}
}

// Close releases the lock.
func (d *Dir) Close() error {
	unix.Close(d.rootfd)
	unix.Close(d.fd)
	return d.lock.Close()
}

// Receipt returns the receipt as it is now, nil if there is none.
func (d *Dir) Receipt() ([]byte, error) {
	return optional(readAt(d.fd, receiptName, maxRecord))
}

// keepAll stores contents under their digests, for no more readers than the
// narrowest of the files that they are from has.
func (d *Dir) keepAll(contents [][]byte, s *syncs) error {
	if len(contents) == 0 {
		return nil
	}
	made := false
	if err := unix.Mkdirat(d.fd, objectsName, 0o755); err == nil {
		made = true
	} else if !errors.Is(err, unix.EEXIST) {
		return &fs.PathError{Op: "mkdir", Path: objectsName, Err: err}
	}
	odir, err := unix.Openat(d.fd, objectsName, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: objectsName, Err: err}
	}
	dir, added := os.NewFile(uintptr(odir), objectsName), false
	if made {
		// by its descriptor: a link that took its place meanwhile leads anywhere
		owner(d.fd).give(odir)
		if err := unix.Fchmod(odir, 0o755); err != nil {
			dir.Close()
			return &fs.PathError{Op: "chmod", Path: objectsName, Err: err}
		}
	}
	for _, data := range contents {
		name := Digest(data)
		if have, err := digestAt(odir, name); err == nil && have == name {
			continue // on disk since the commit that put it there
		}
		if err := putFor(odir, name, data, d.kept, s); err != nil {
			dir.Close()
			return err
		}
		added = true
	}
	if !added {
		return dir.Close()
	}
	s.file(dir)
	return nil
}

// suffix marks a record that is being written.
const suffix = ".new"

// putAt replaces a record by rename. Its content is on disk when s has waited,
// its name when the directory is synced as well.
func putAt(dirfd int, name string, data []byte, s *syncs) error {
	return putFor(dirfd, name, data, originals{mode: 0o644}, s)
}

func putFor(dirfd int, name string, data []byte, o originals, s *syncs) error {
	if err := writeFor(dirfd, name, data, o, s); err != nil {
		return err
	}
	if err := unix.Renameat(dirfd, name+suffix, dirfd, name); err != nil {
		return &fs.PathError{Op: "rename", Path: name, Err: err}
	}
	return nil
}

// writeNew writes a record under its name with the suffix.
func writeNew(dirfd int, name string, data []byte, s *syncs) error {
	return writeFor(dirfd, name, data, originals{mode: 0o644}, s)
}

func writeFor(dirfd int, name string, data []byte, o originals, s *syncs) error {
	tmp := name + suffix
	if err := unix.Unlinkat(dirfd, tmp, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "unlink", Path: tmp, Err: err}
	}
	fd, err := unix.Openat(dirfd, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &fs.PathError{Op: "create", Path: tmp, Err: err}
	}
	f := os.NewFile(uintptr(fd), tmp)
	s.file(f)
	if !o.private {
		owner(dirfd).give(fd)
	}
	return errors.Join(writeAll(f, data), unix.Fchmod(fd, o.mode))
}

// ids is who a new file shall belong to.
type ids struct{ uid, gid int }

// owner is the owner of a directory. What root makes in somebody's install
// belongs to them, who would otherwise be locked out of their own records; the
// records are checked whenever they are read, whoever they belong to.
func owner(dirfd int) ids {
	var st unix.Stat_t
	if os.Geteuid() != 0 || unix.Fstat(dirfd, &st) != nil {
		return ids{-1, -1}
	}
	return ids{int(st.Uid), int(st.Gid)}
}

func (o ids) give(fd int) {
	if o.uid > 0 {
		unix.Fchown(fd, o.uid, o.gid) // of no consequence if the file system has no owners
	}
}

// syncs collects what has to be on disk before a commit goes on. The disk does
// one flush for all that wait at once.
type syncs struct {
	fds   []int
	files []*os.File // to be closed after their sync
	err   error
}

// manySyncs bounds the open files and the threads that wait.
const manySyncs = 64

func (s *syncs) add(fd int) { s.fds = append(s.fds, fd) }

// file takes over a file that is being written: it is synced and closed.
func (s *syncs) file(f *os.File) {
	if len(s.fds) >= manySyncs {
		s.err = s.wait()
	}
	s.files = append(s.files, f)
	s.add(int(f.Fd()))
}

// wait returns when everything is on disk.
func (s *syncs) wait() error {
	errs := make(chan error, len(s.fds))
	for _, fd := range s.fds {
		go func() { errs <- unix.Fsync(fd) }()
	}
	all := s.err
	for range s.fds {
		all = errors.Join(all, <-errs)
	}
	s.close()
	return all
}

func (s *syncs) close() {
	for _, f := range s.files {
		f.Close()
	}
	s.fds, s.files, s.err = nil, nil, nil
}

func writeAll(f *os.File, data []byte) error {
	_, err := f.Write(data)
	return err
}

// Purge takes the records away. The lock is held until Close.
func (d *Dir) Purge() error {
	d.gone = true
	root, err := os.OpenRoot(d.root)
	if err != nil {
		return err
	}
	defer root.Close()
	var held unix.Stat_t
	if st, err := root.Stat("."); err != nil || unix.Fstat(d.rootfd, &held) != nil || st.Sys().(*syscall.Stat_t).Ino != held.Ino || uint64(st.Sys().(*syscall.Stat_t).Dev) != uint64(held.Dev) {
		return &ChangedError{d.root}
	}
	return root.RemoveAll(Folder)
}

// Append adds one line to a log that only its owner may read, creating it and
// its directory; a torn last line of an earlier crash is closed first.
func Append(path string, line []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return &fs.PathError{Op: "lock", Path: path, Err: err}
	}
	if st, err := f.Stat(); err == nil && st.Size() > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, st.Size()-1); err == nil && last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	return writeAll(f, append(line, '\n')) // not synced: the receipt beside the install is what counts
}

// Scratch makes an empty directory that only uid may enter.
func Scratch(uid, gid int) (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp("", "sgpatch-"); err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	if uid != os.Geteuid() {
		if err := os.Chown(dir, uid, gid); err != nil {
			remove()
			return "", nil, err
		}
	}
	return dir, remove, nil
}

// Link makes a symbolic link; an existing file is an error.
func Link(target, path string) error { return os.Symlink(target, path) }
