package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

// process is a command that runs on the host. Its output is read to the end
// before wait.
type process struct {
	stdin  io.WriteCloser
	stdout io.Reader
	stderr *tail
	wait   func() (exit int, err error)
	kill   func()
}

// tail keeps the end of what a command said to people.
type tail struct {
	mu  sync.Mutex
	end []byte
}

const tailSize = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p...)
	if len(t.end) > tailSize {
		t.end = bytes.Clone(t.end[len(t.end)-tailSize:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.end))
}

// commandLink is a connection that the system's ssh makes, a new one for every
// command unless its own configuration shares them.
type commandLink struct {
	argv []string
}

// command is the line in front of a remote command. Nothing is asked (a
// question to many hosts at once cannot be answered), and no unknown key taken.
func (d *Dialer) command(name string) *commandLink {
	t, _ := parseTarget(name)
	argv := append([]string(nil), d.Command...)
	if d.Config != "" {
		argv = append(argv, "-F", d.Config)
	}
	strict := "yes"
	if d.AcceptNew {
		strict = "accept-new"
	}
	argv = append(argv, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking="+strict, "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3", "-T")
	if d.Timeout > 0 {
		argv = append(argv, "-o", "ConnectTimeout="+strconv.Itoa(max(1, int(d.Timeout.Seconds()))))
	} else {
		argv = append(argv, "-o", fmt.Sprintf("ConnectTimeout=%d", int(DefaultTimeout.Seconds())))
	}
	if t.port != "" {
		argv = append(argv, "-p", t.port)
	}
	if t.user != "" {
		argv = append(argv, "-l", t.user)
	}
	return &commandLink{append(argv, "--", t.host)}
}

func (l *commandLink) close() {}

func (l *commandLink) start(line string) (*process, error) {
	cmd := exec.Command(l.argv[0], append(l.argv[1:len(l.argv):len(l.argv)], line)...)
	// an interrupt from the terminal is for us; the host hears of it from us
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := &process{stderr: &tail{}}
	cmd.Stderr = p.stderr
	var err error
	if p.stdin, err = cmd.StdinPipe(); err == nil {
		p.stdout, err = cmd.StdoutPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("--ssh-command %s: %w", l.argv[0], err)
	}
	p.kill = func() { cmd.Process.Signal(syscall.SIGTERM) }
	p.wait = func() (int, error) {
		err := cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() >= 0 && exit.ExitCode() != sshFailed {
			return exit.ExitCode(), nil
		}
		return 0, err
	}
	return p, nil
}

// sshFailed is how ssh ends if it was not the remote command that ended.
const sshFailed = 255
