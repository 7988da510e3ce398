//go:build faults

package txn

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A build with the tag faults counts the calls of this package from 1 and does
// what SGPATCH_FAULT says, "WHAT:N:WHEN", to the N-th:
//
//	WHAT  kill, an error's name as EIO, or short (half is written)
//	WHEN  before  instead of the call
//	      after   once the call was made
//	      on      instead of it and of every later call that such a disk refuses
//
// Every call is noted as a line of JSON at the end of SGPATCH_FAULT_LOG.

// serial, so that the same run makes the same calls in the same order.
const serial = true

// Noted is a call as the log has it. Files are known by device and inode.
type Noted struct {
	N      int    `json:"n"`
	Op     string `json:"op"`
	Dir    string `json:"dir,omitempty"`
	Name   string `json:"name,omitempty"`
	To     string `json:"to,omitempty"`
	Ino    string `json:"ino,omitempty"` // of the file that the call is about, or that it made
	Data   []byte `json:"data,omitempty"`
	Mode   uint32 `json:"mode,omitempty"`
	UID    int    `json:"uid,omitempty"`
	Failed string `json:"failed,omitempty"`
}

var fault = struct {
	sync.Mutex
	what, when string
	at, n      int
	log        *os.File
}{}

func init() {
	if spec := strings.Split(os.Getenv("SGPATCH_FAULT"), ":"); len(spec) == 3 {
		fault.what, fault.when = spec[0], spec[2]
		fault.at, _ = strconv.Atoi(spec[1])
	}
	if path := os.Getenv("SGPATCH_FAULT_LOG"); path != "" {
		fault.log, _ = os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	}
}

var errnos = map[string]unix.Errno{
	"EIO": unix.EIO, "ENOSPC": unix.ENOSPC, "EROFS": unix.EROFS, "EACCES": unix.EACCES, "EBUSY": unix.EBUSY, "EDQUOT": unix.EDQUOT, "EINTR": unix.EINTR,
}

func inject(c call, do func() error) error {
	fault.Lock()
	defer fault.Unlock()
	fault.n++
	hit := fault.n == fault.at
	switch {
	case hit && fault.what == "short" && c.op == "write" && len(c.data) > 1:
		_, err := unix.Write(c.fd, c.data[:len(c.data)/2])
		if err == nil {
			err = unix.ENOSPC // as the next write would say
		}
		return err
	case hit && fault.what == "kill" && fault.when != "after":
		die()
	case hit && fault.when == "before", fault.at > 0 && fault.n >= fault.at && fault.when == "on" && refuses(fault.what, c.op):
		if err, ok := errnos[fault.what]; ok {
			return err
		}
	}
	note := begin(c)
	err := do()
	note.end(c, err)
	if hit && fault.when == "after" {
		if fault.what == "kill" {
			die()
		}
		if e, ok := errnos[fault.what]; ok && err == nil {
			return e
		}
	}
	return err
}

// refuses says whether a disk in this state refuses such a call.
func refuses(what, op string) bool {
	switch what {
	case "ENOSPC", "EDQUOT":
		return op == "create" || op == "mkdir" || op == "write" || op == "writeback" || op == "setxattr"
	case "EROFS", "EACCES":
		return op != "open" && op != "read" && op != "writeback" && op != "fsync" && op != "lock" && op != "write"
	}
	return op != "open" && op != "read" && op != "lock"
}

func die() {
	unix.Kill(unix.Getpid(), unix.SIGKILL)
	select {}
}

// begin notes what can only be seen before the call.
func begin(c call) *Noted {
	if fault.log == nil {
		return nil
	}
	n := &Noted{N: fault.n, Op: c.op, Name: c.name, To: c.to}
	switch {
	case c.dir == unix.AT_FDCWD && c.name != "":
		n.Dir, n.Name, n.Ino = inode(c.dir, filepath.Dir(c.name)), filepath.Base(c.name), inode(c.dir, c.name)
	case c.name != "":
		n.Dir, n.Ino = inode(c.dir, ""), inode(c.dir, c.name)
	default:
		n.Ino = inode(c.fd, "")
	}
	n.Data = c.data
	return n
}

func (n *Noted) end(c call, err error) {
	if n == nil {
		return
	}
	if err != nil {
		n.Failed = err.Error()
	}
	if c.op == "create" || c.op == "mkdir" {
		n.Ino = inode(c.dir, c.name)
	}
	if c.op == "chmod" || c.op == "chown" {
		var st unix.Stat_t
		unix.Fstat(c.fd, &st)
		n.Mode, n.UID = st.Mode&0o7777, int(st.Uid)
	}
	line, _ := json.Marshal(n)
	if _, err := fault.log.Write(append(line, '\n')); err != nil {
		panic(fmt.Sprint("the log of calls: ", err))
	}
}

// inode of an open file, or of a name in an open directory; "" if there is none.
func inode(fd int, name string) string {
	var st unix.Stat_t
	var err error
	if name == "" {
		err = unix.Fstat(fd, &st)
	} else {
		err = unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%x.%x", st.Dev, st.Ino)
}
