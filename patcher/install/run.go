package install

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Output keeps what a child prints, up to a limit: then its writes fail.
type Output struct {
	buf  bytes.Buffer // not embedded: its ReadFrom knows no limit
	full bool
}

const maxOutput = 16 << 20

func (o *Output) Write(b []byte) (int, error) {
	if o.buf.Len()+len(b) > maxOutput {
		o.full = true
		return 0, errors.New("too much output")
	}
	return o.buf.Write(b)
}

func (o *Output) Bytes() []byte  { return o.buf.Bytes() }
func (o *Output) String() string { return o.buf.String() }

// Tail keeps the end of what a child prints, however much that is. It may be read
// while it is written.
type Tail struct {
	mu  sync.Mutex
	end []byte
}

const tailSize = 4 << 20

func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.end = append(t.end, b...); len(t.end) > 2*tailSize {
		t.end = bytes.Clone(t.end[len(t.end)-tailSize:])
	}
	return len(b), nil
}

// Bytes is a copy of what was kept.
func (t *Tail) Bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.end)
}

// Command prepares a run of an interpreter in its own session, without our
// terminal, into which it could type. Root runs an interpreter that belongs to
// another user as that user, and also one that is to execute texts of another
// user: whoever can write those could otherwise run anything as root.
func Command(ctx context.Context, python string, texts []string, args ...string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	if os.Geteuid() != 0 {
		return cmd, nil
	}
	uid, gid, err := Owner(append(executes(python), texts...)...)
	if err != nil {
		return nil, &PythonError{Python: python, Err: err}
	}
	if uid == 0 {
		return cmd, nil
	}
	// a failure to start is told with this: root is not stopped by modes, that user may be
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	cmd.Env = append(slices.DeleteFunc(os.Environ(), secret), "HOME="+home(uid))
	return cmd, nil
}

// executes lists what decides which code an interpreter runs at its start: it
// itself, its pyvenv.cfg, and its site directories, each replaced by whoever
// owns the directory that it is in.
func executes(python string) []string {
	bin := filepath.Dir(python)
	all := []string{python, bin, realOr(python), filepath.Dir(bin)}
	others := reachable(python)
	for root := range Roots(python) {
		all = append(all, root)
		// A file there that root gave to somebody counts only where they can reach
		// the interpreter: in a private environment of root's nobody could start it.
		for _, name := range []string{"sitecustomize.py", "usercustomize.py", "sitecustomize"} {
			if path := filepath.Join(root, name); others && (isFile(path) || isDir(path)) {
				all = append(all, path)
			}
		}
	}
	return slices.DeleteFunc(all, func(path string) bool { return path != python && !Exists(path) })
}

// reachable says whether everybody may pass all directories on the way to a file.
func reachable(path string) bool {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// Exists says whether something has that name, a link that dangles included.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// secret says whether a variable of root's is none of another user's business.
func secret(kv string) bool {
	name, _, _ := strings.Cut(strings.ToUpper(kv), "=")
	return slices.ContainsFunc([]string{"TOKEN", "SECRET", "PASSW", "CREDENTIAL", "_KEY", "SSH_", "COOKIE", "XAUTHORITY", "DBUS_SESSION"}, func(part string) bool {
		return strings.Contains(name, part)
	})
}

// Owner returns the first owner of these paths that is not root, with the group
// that this user logs in with; links are not followed. A file's own group is
// not taken: it may be one that the user is not in.
func Owner(paths ...string) (uid, gid uint32, err error) {
	for _, p := range paths {
		st, err := os.Lstat(p)
		if err != nil {
			return 0, 0, err
		}
		if s := st.Sys().(*syscall.Stat_t); s.Uid != 0 {
			return s.Uid, group(s.Uid), nil
		}
	}
	return 0, 0, nil
}

// group is the login group of a user, and the number of one that has no account.
func group(uid uint32) uint32 {
	if gid, err := strconv.ParseUint(account(int(uid), 3), 10, 32); err == nil {
		return uint32(gid)
	}
	return uid
}

func home(uid uint32) string {
	if _, home := Account(int(uid)); home != "" {
		return home
	}
	return "/"
}

// Account returns the name and home of a user, "" for one without an entry in
// /etc/passwd. os/user would make the program depend on the C library.
func Account(uid int) (name, home string) { return account(uid, 0), account(uid, 5) }

func account(uid, field int) string {
	text, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) >= 6 && f[2] == strconv.Itoa(uid) {
			return f[field]
		}
	}
	return ""
}
