package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sgpatch/patcher/install"
	"sgpatch/verify"
)

// once runs the command, or the server and what drives it, one way, and returns
// what was printed.
func (e *experiment) once(ctx context.Context, with bool) ([]byte, error) {
	if e.o.try.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, e.o.try.limit, fmt.Errorf("it did not end within %s", e.o.try.limit))
		defer cancel()
	}
	env := e.environment(with)
	if !e.o.hasCmd {
		return e.served(ctx, env)
	}
	job := begin(ctx, env, e.o.cmd)
	err := job.wait()
	return job.output(), err
}

// environment is what a run gets: the switches of the sets thrown one way or
// the other, where they have some.
func (e *experiment) environment(with bool) []string {
	env := append(os.Environ(), verify.TrialVariable+"="+e.stamp)
	for name, value := range e.flips {
		if !with {
			value = "0"
		}
		env = append(env, name+"="+value)
	}
	return env
}

// job is a command with all that it starts: a process group of its own.
type job struct {
	cmd   *exec.Cmd
	ctx   context.Context
	tail  install.Tail
	err   error
	ended chan struct{}
}

// patience is how long a job may take to end after a SIGTERM.
const patience = 30 * time.Second

// begin starts a command. When ctx ends it gets a SIGTERM, and a while later it
// and what it had started are killed; what it leaves behind is killed, too.
func begin(ctx context.Context, env, argv []string) *job {
	j := &job{ctx: ctx, ended: make(chan struct{})}
	j.cmd = exec.CommandContext(ctx, argv[0], argv[1:]...)
	mark := fmt.Sprintf("SGPATCH_TRIAL_JOB=%016x", rand.Uint64())
	j.cmd.Env = append(slices.Clone(env), mark)
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	j.cmd.Cancel = func() error { return syscall.Kill(-j.cmd.Process.Pid, syscall.SIGTERM) }
	j.cmd.WaitDelay = patience
	// a pipe of our own: what is left behind may hold it, and is not waited for
	from, into, err := os.Pipe()
	if err == nil {
		j.cmd.Stdout, j.cmd.Stderr = into, into
		err = j.cmd.Start()
		into.Close()
	}
	if err != nil {
		j.err = err
		close(j.ended)
		return j
	}
	go func() {
		read := make(chan struct{})
		go func() {
			io.Copy(&j.tail, from)
			close(read)
		}()
		j.err = j.cmd.Wait()
		syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL)
		sweep(mark)
		from.SetReadDeadline(time.Now().Add(2 * time.Second)) // another user's process may have it still
		<-read
		from.Close()
		close(j.ended)
	}()
	return j
}

// sweep kills what a job left behind in sessions of their own, as daemons are, and
// what they start meanwhile: the variable that marks them goes with them.
func sweep(mark string) {
	found := true
	for tries := 0; found && tries < 100; tries++ { // gone, before the next one wants its memory
		if tries > 0 {
			time.Sleep(50 * time.Millisecond)
		}
		found = false
		processes, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range processes {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			p, err := os.FindProcess(pid) // holds on to this one: a number may come again
			if err != nil {
				continue
			}
			env, _ := os.ReadFile(dir + "/environ")
			if slices.Contains(strings.Split(string(env), "\x00"), mark) && p.Kill() == nil {
				found = true
			}
			p.Release()
		}
	}
}

// wait returns why it was not well, nil if it was.
func (j *job) wait() error {
	<-j.ended
	switch {
	case j.ctx.Err() != nil:
		return context.Cause(j.ctx)
	case j.err != nil:
		return fmt.Errorf("%w; its last lines: %s", j.err, lastLines(j.output()))
	}
	return nil
}

func (j *job) output() []byte { return j.tail.Bytes() }

// served starts the server, waits until it answers, and drives it.
func (e *experiment) served(ctx context.Context, env []string) ([]byte, error) {
	if u, err := parseReady(e.o.try.ready); err == nil && up(ctx, u) {
		return nil, fmt.Errorf("%s answers before the server is started: another one runs there, and it would be measured", e.o.try.ready)
	}
	inside, stop := context.WithCancel(ctx)
	server := begin(inside, env, []string{"/bin/sh", "-c", e.o.try.server})
	defer func() { // gone, before the next one wants its memory
		stop()
		<-server.ended
	}()
	if err := e.answers(ctx, server); err != nil {
		return nil, err
	}
	driven, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	bench := begin(driven, env, []string{"/bin/sh", "-c", e.o.try.bench})
	select {
	case <-bench.ended:
	case <-server.ended: // what drives it could wait for it for ever
		lost(fmt.Errorf("the server ended while it was driven; its last lines: %s", lastLines(server.output())))
	}
	err := bench.wait()
	return bench.output(), err
}

// answers waits until the server answers, or has ended, or the time is up.
func (e *experiment) answers(ctx context.Context, server *job) error {
	u, err := parseReady(e.o.try.ready)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, e.o.try.readyIn, fmt.Errorf("the server did not answer %s within %s", e.o.try.ready, e.o.try.readyIn))
	defer cancel()
	for {
		if up(ctx, u) {
			return nil
		}
		select {
		case <-server.ended:
			return fmt.Errorf("the server ended before it answered; its last lines: %s", lastLines(server.output()))
		case <-ctx.Done():
			return fmt.Errorf("%w; its last lines: %s", context.Cause(ctx), lastLines(server.output()))
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// parseReady reads the address of a server on this machine or near it. It is
// asked in plain HTTP, which needs no library.
func parseReady(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" || strings.ContainsAny(s, " \r\n") {
		return nil, usagef("--ready %q: an address as http://127.0.0.1:30000/health", s)
	}
	return u, nil
}

func up(ctx context.Context, u *url.URL) bool {
	port := u.Port()
	if port == "" {
		port = "80"
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return false
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		conn.SetDeadline(end)
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", u.RequestURI(), u.Host)
	head := make([]byte, 16)
	n, err := io.ReadFull(conn, head)
	status := strings.Fields(string(head[:n]))
	return (err == nil || n > 12) && len(status) > 1 && strings.HasPrefix(status[0], "HTTP/") && strings.HasPrefix(status[1], "2")
}
