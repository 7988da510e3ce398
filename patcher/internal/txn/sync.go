package txn

import (
	"errors"

	"golang.org/x/sys/unix"
)

// syncs collects what has to be on disk before a commit goes on. The disk does
// one flush for all that wait at once.
type syncs struct {
	fds []int
	own []int // to be closed after their sync
	err error
}

// manySyncs bounds the open files and the threads that wait.
const manySyncs = 64

func (s *syncs) add(fd int) { s.fds = append(s.fds, fd) }

// file takes over a file that is being written: it is synced and closed.
func (s *syncs) file(fd int) {
	if len(s.fds) >= manySyncs {
		s.err = s.wait()
	}
	s.own = append(s.own, fd)
	s.add(fd)
}

// wait returns when everything is on disk. The disk is told of all of it before it
// is waited for.
func (s *syncs) wait() error {
	for _, fd := range s.fds {
		s.err = errors.Join(s.err, writeback(fd))
	}
	errs := make(chan error, len(s.fds))
	for _, fd := range s.fds {
		if serial {
			errs <- fsyncfd(fd)
		} else {
			go func() { errs <- fsyncfd(fd) }()
		}
	}
	all := s.err
	for range s.fds {
		all = errors.Join(all, <-errs)
	}
	s.close()
	return all
}

func (s *syncs) close() {
	for _, fd := range s.own {
		unix.Close(fd)
	}
	s.fds, s.own, s.err = nil, nil, nil
}
