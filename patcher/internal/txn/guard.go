package txn

import (
	"errors"

	"golang.org/x/sys/unix"
)

// ErrNoFile says that a record is a link, a pipe or the like.
var ErrNoFile = errors.New("not a regular file of its own")

// openLock makes the lock file, or opens the one that is there. Only one that
// was made here is given away: another may be a hard link to anything.
func openLock(dirfd int) (int, error) {
	fd, err := createat(dirfd, lockName)
	if err == nil {
		owner(dirfd).give(fd)
		if err := chmodfd(fd, 0o644); err != nil { // whatever the umask
			unix.Close(fd)
			return -1, err
		}
		return fd, nil
	}
	if !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	if fd, err = openat(dirfd, lockName, unix.O_RDWR|unix.O_NONBLOCK|nofollow); err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return -1, errors.Join(err, ErrNoFile)
	}
	return fd, nil
}

// Owner is who the records belong to.
func (d *Dir) Owner() uint32 {
	var st unix.Stat_t
	if unix.Fstat(d.fd, &st) != nil {
		return ^uint32(0)
	}
	return st.Uid
}
