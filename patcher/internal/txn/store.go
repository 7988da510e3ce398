package txn

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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
	odir, err := openat(dirfd, objectsName, unix.O_DIRECTORY|nofollow)
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
	fd, err := openat(dirfd, name, unix.O_DIRECTORY|nofollow)
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

// Receipt returns the receipt as it is now, nil if there is none.
func (d *Dir) Receipt() ([]byte, error) {
	return optional(readAt(d.fd, receiptName, maxRecord))
}

// content is what is stored under its digest. That of a file which not everybody
// could read belongs to the owner of the file, who alone can read it.
type content struct {
	data    []byte
	mode    uint32
	private bool
	of      ids
}

// keepAll stores contents under their digests.
func (d *Dir) keepAll(contents []content, s *syncs) error {
	if len(contents) == 0 {
		return nil
	}
	odir, err := d.objects()
	if err != nil {
		return err
	}
	for _, c := range contents {
		if err := keep(odir, c, s); err != nil {
			unix.Close(odir)
			return err
		}
	}
	s.file(odir) // the last: s may wait and close before all names are in it
	return nil
}

func keep(odir int, c content, s *syncs) error {
	name := Digest(c.data)
	if fd, err := kept(odir, name); err == nil {
		s.file(fd) // the command that put it there may have been killed before it was on disk
		return nil
	}
	mode, of := c.mode, owner(odir)
	if c.private {
		mode, of = mode&0o600, c.of
	}
	if err := writeNew(odir, name, c.data, mode, of, s); err != nil {
		return err
	}
	return place(odir, name)
}

// kept opens a content that is stored already, and checks it.
func kept(odir int, name string) (int, error) {
	if have, err := digestAt(odir, name); err != nil || have != name {
		return -1, errors.Join(err, fs.ErrNotExist)
	}
	return openat(odir, name, unix.O_RDONLY|unix.O_NONBLOCK|nofollow)
}

// objects opens the folder of the contents, or makes it.
func (d *Dir) objects() (int, error) {
	made := mkdirat(d.fd, objectsName)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return -1, &fs.PathError{Op: "mkdir", Path: objectsName, Err: made}
	}
	fd, err := openat(d.fd, objectsName, unix.O_DIRECTORY|nofollow)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: objectsName, Err: err}
	}
	if made != nil {
		return fd, nil
	}
	// by its descriptor: a link that took its place meanwhile leads anywhere
	owner(d.fd).give(fd)
	if err := chmodfd(fd, 0o755); err != nil { // whatever the umask
		unix.Close(fd)
		return -1, &fs.PathError{Op: "chmod", Path: objectsName, Err: err}
	}
	return fd, nil
}

// suffix marks a record that is being written.
const suffix = ".new"

// putAt replaces a record by rename. Its content is on disk when s has waited,
// its name when the directory is synced as well.
func putAt(dirfd int, name string, data []byte, s *syncs) error {
	if err := writeNew(dirfd, name, data, 0o644, owner(dirfd), s); err != nil {
		return err
	}
	return place(dirfd, name)
}

func place(dirfd int, name string) error {
	if err := renameat(dirfd, name+suffix, name); err != nil {
		return &fs.PathError{Op: "rename", Path: name, Err: err}
	}
	return nil
}

// writeNew writes a record under its name with the suffix.
func writeNew(dirfd int, name string, data []byte, mode uint32, own ids, s *syncs) error {
	tmp := name + suffix
	if err := unlinkat(dirfd, tmp); err != nil {
		return &fs.PathError{Op: "unlink", Path: tmp, Err: err}
	}
	fd, err := createat(dirfd, tmp)
	if err != nil {
		return &fs.PathError{Op: "create", Path: tmp, Err: err}
	}
	s.file(fd)
	own.give(fd)
	return errors.Join(writeAll(fd, data), chmodfd(fd, mode))
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
	if o.uid > 0 && os.Geteuid() == 0 {
		chownfd(fd, o.uid, o.gid) // of no consequence if the file system has no owners
	}
}

// Purge takes the records away. The lock is held until Close; it goes last, so
// that nobody who finds none begins records of their own before all else is gone.
func (d *Dir) Purge() error {
	return act(call{op: "purge", dir: unix.AT_FDCWD, name: filepath.Join(d.root, Folder)}, func() error {
		err := empty(d.fd, lockName)
		if err == nil {
			err = unix.Unlinkat(d.fd, lockName, 0)
		}
		if err == nil {
			err = unix.Unlinkat(d.rootfd, Folder, unix.AT_REMOVEDIR)
		}
		if errors.Is(err, unix.ENOTEMPTY) {
			return nil // another command begins
		}
		return err
	})
}

// empty removes what is in a directory but for one name; no link is followed.
func empty(dir int, but string) error {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	for _, name := range names {
		if name == but {
			continue
		}
		e := unix.Unlinkat(dir, name, 0)
		if errors.Is(e, unix.EISDIR) || errors.Is(e, unix.EPERM) {
			e = emptyAndRemove(dir, name)
		}
		err = errors.Join(err, e)
	}
	return err
}

func emptyAndRemove(dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|nofollow, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return errors.Join(empty(fd, ""), unix.Unlinkat(dir, name, unix.AT_REMOVEDIR))
}
