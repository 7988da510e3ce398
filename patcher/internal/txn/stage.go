package txn

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stage writes the new content beside the target with the target's owner, mode
// and attributes. It has the mode 0600 until it is complete; s knows it then.
func stage(dirfd int, base, name string, w Write, s *syncs) error {
	fd, err := createat(dirfd, name)
	if err != nil {
		return &fs.PathError{Op: "create", Path: name, Err: err}
	}
	s.file(fd)
	if err := writeAll(fd, w.Data); err != nil {
		return err
	}
	return dress(dirfd, base, fd, w)
}

// dress gives the staged file everything of the file it will replace.
func dress(dirfd int, base string, fd int, w Write) error {
	old, err := openat(dirfd, base, unix.O_RDONLY|unix.O_NONBLOCK|nofollow)
	if errors.Is(err, unix.ENOENT) {
		owner(dirfd).give(fd)
		return errors.Join(chmodfd(fd, uint32(w.Perm.Perm())), setTimes(fd, w.Mtime))
	}
	if err != nil {
		return err
	}
	defer unix.Close(old)
	var was, is unix.Stat_t
	if err := errors.Join(unix.Fstat(old, &was), unix.Fstat(fd, &is)); err != nil {
		return err
	}
	if err := plain(was.Mode); err != nil {
		return err
	}
	if was.Uid != is.Uid || was.Gid != is.Gid {
		if err := chownfd(fd, int(was.Uid), int(was.Gid)); err != nil {
			return fmt.Errorf("its owner %d:%d cannot be kept: %w", was.Uid, was.Gid, err)
		}
	}
	// the access control list first: without it the group's bits mean more people
	if err := copyAttributes(old, fd); err != nil {
		return err
	}
	if err := chmodfd(fd, was.Mode&0o7777); err != nil {
		return fmt.Errorf("its mode cannot be kept: %w", err)
	}
	return setTimes(fd, newTime(w, was, int64(len(w.Data))))
}

// plain refuses what no source file is: a set-uid program by the name of one
// would go on as whatever is put in its place, with its owner's rights.
func plain(mode uint32) error {
	switch {
	case mode&unix.S_IFMT != unix.S_IFREG:
		return errors.New("it is not a regular file")
	case mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		return fmt.Errorf("it is set-uid or set-gid (chmod ug-s): %w", unix.EPERM)
	}
	return nil
}

// newTime keeps the whole second of the modification time from being the old
// one when the sizes agree: Python would run the old bytecode.
func newTime(w Write, was unix.Stat_t, size int64) time.Time {
	if !w.Mtime.IsZero() {
		return w.Mtime
	}
	now := time.Now()
	if was.Size == size && now.Unix() == was.Mtim.Sec {
		return now.Add(time.Second)
	}
	return now
}

func setTimes(fd int, t time.Time) error {
	if t.IsZero() {
		return nil
	}
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(t.UnixNano())}
	return utimes(fd, ts)
}

// copyAttributes makes the extended attributes of two files the same; access
// control lists and the SELinux label are among them.
func copyAttributes(from, to int) error {
	want, err := attributes(from)
	if err != nil {
		return err
	}
	have, err := attributes(to)
	if err != nil {
		return err
	}
	for name := range have {
		if _, ok := want[name]; !ok && !strings.HasPrefix(name, "security.") {
			// a default ACL of the directory, which the old file does not have
			if err := removexattr(to, name); err != nil {
				return fmt.Errorf("attribute %s: %w", name, err)
			}
		}
	}
	for name, value := range want {
		if got, ok := have[name]; ok && bytes.Equal(got, value) {
			continue
		}
		if err := setxattr(to, name, value); err != nil {
			return fmt.Errorf("its attribute %s cannot be kept: %w", name, err)
		}
	}
	return nil
}

func attributes(fd int) (map[string][]byte, error) {
	n, err := unix.Flistxattr(fd, nil)
	if errors.Is(err, unix.ENOTSUP) || n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("attributes: %w", err)
	}
	list := make([]byte, n+1024)
	if n, err = unix.Flistxattr(fd, list); err != nil {
		return nil, fmt.Errorf("attributes: %w", err)
	}
	all := map[string][]byte{}
	for _, name := range strings.Split(strings.TrimRight(string(list[:n]), "\x00"), "\x00") {
		if name == "" || name == "security.ima" || name == "security.evm" || name == "security.capability" {
			continue // digests of the old content and rights given to it: the kernel sees to them
		}
		value := make([]byte, 64<<10)
		n, err := unix.Fgetxattr(fd, name, value)
		if err != nil {
			return nil, fmt.Errorf("attribute %s: %w", name, err)
		}
		all[name] = value[:n]
	}
	return all, nil
}

// fixed are the attributes with which nothing is renamed, not even by root.
const fixed = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND

// Replaceable says why a file could not be replaced by rename, if that can be
// seen beforehand: its directory is not writable, it is immutable, or something
// is mounted on it.
func Replaceable(path string) error {
	dir, base := split(path)
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return &fs.PathError{Op: "write", Path: dir, Err: err}
	}
	var file, parent unix.Statx_t
	mask := unix.STATX_MNT_ID | unix.STATX_BASIC_STATS
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, mask, &parent); err != nil {
		return &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	if parent.Attributes&fixed != 0 {
		return &fs.PathError{Op: "write", Path: dir, Err: fmt.Errorf("it is immutable (chattr): %w", unix.EPERM)}
	}
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, mask, &file); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if err := plain(uint32(file.Mode)); err != nil {
		return &fs.PathError{Op: "replace", Path: path, Err: err}
	}
	if file.Mask&parent.Mask&unix.STATX_MNT_ID != 0 && file.Mnt_id != parent.Mnt_id {
		return &fs.PathError{Op: "replace", Path: path, Err: fmt.Errorf("something is mounted on %s: %w", base, unix.EBUSY)}
	}
	if file.Attributes&fixed != 0 {
		return &fs.PathError{Op: "replace", Path: path, Err: fmt.Errorf("it is immutable (chattr): %w", unix.EPERM)}
	}
	return nil
}
