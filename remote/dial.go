package remote

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// A host that has not answered for lostAfter times keepalive is gone.
const (
	keepalive = 10 * time.Second
	lostAfter = 3
)

// dial connects to a host within one time, jumps and handshakes included. A
// server that is asked by many at once drops some (MaxStartups) before it says
// a word; they come again a little later, each after a time of its own.
func (d *Dialer) dial(ctx context.Context, h host) (link, error) {
	limit := d.Timeout
	if limit == 0 {
		limit = h.timeout
	}
	if limit == 0 {
		limit = DefaultTimeout
	}
	c := newClock(ctx, limit)
	defer c.stop()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		l, dropped, err := d.try(c, h)
		switch {
		case err == nil:
			return l, nil
		case context.Cause(c) == errTime:
			return nil, hint("is that the right address? "+h.says(), "no connection within %s (--connect-timeout): %w", limit, err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !dropped:
			return nil, err
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-c.Done():
		}
	}
}

// says tells where the address comes from.
func (h host) says() string {
	if h.addressAt == "" {
		return "ssh -v -p " + h.port + " " + h.user + "@" + h.address
	}
	return h.addressAt + " says " + h.address
}

// try makes one attempt through all jumps. dropped says that a server closed
// the connection before it had shown a key.
func (d *Dialer) try(c *clock, h host) (l *sshLink, dropped bool, err error) {
	l = &sshLink{}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	for i, hop := range append(slices.Clone(h.jumps), h) {
		conn, err := l.next(c, hop.dial())
		if err != nil {
			return l, false, hint(hop.says(), "%s: %w", hop.dial(), reason(err))
		}
		if i == 0 { // all else goes through it: a channel alone cannot be closed if its carrier is dead
			stop := c.onEnd(func() { conn.Close() })
			defer stop()
		}
		l.closers = append(l.closers, conn)
		client, dropped, err := d.handshake(c, conn, hop)
		if err != nil {
			if hop.name != h.name {
				err = hintOf(err, "jump %s: %w", hop.name, err)
			}
			return l, dropped, err
		}
		l.client = client
		l.closers = append(l.closers, client)
	}
	go l.keepAlive(cmp.Or(d.every, keepalive))
	return l, false, nil
}

// hintOf puts words in front of an error and keeps its way out.
func hintOf(err error, format string, args ...any) error {
	var h *hinted
	if errors.As(err, &h) {
		return hint(h.hint, format, args...)
	}
	return hint("", format, args...)
}

func (d *Dialer) handshake(c *clock, conn net.Conn, h host) (_ *ssh.Client, dropped bool, err error) {
	check, err := d.checker(h)
	if err != nil {
		return nil, false, err
	}
	creds := &credentials{d: d, host: h, clock: c}
	defer creds.close()
	cfg := &ssh.ClientConfig{
		User: h.user, Auth: []ssh.AuthMethod{ssh.PublicKeysCallback(creds.signers)},
		HostKeyCallback: check.check, HostKeyAlgorithms: check.algorithms(), ClientVersion: "SSH-2.0-sgpatch",
	}
	sc, channels, requests, err := ssh.NewClientConn(conn, h.dial(), cfg)
	switch {
	case err == nil:
		return ssh.NewClient(sc, channels, requests), false, nil
	case check.err != nil:
		return nil, false, check.err
	case check.seen && strings.Contains(err.Error(), "unable to authenticate"):
		return nil, false, creds.refused(err)
	}
	return nil, !check.seen && closed(err), err
}

func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || strings.HasSuffix(err.Error(), "EOF")
}

// sshLink is a connection of our own, over all its jumps.
type sshLink struct {
	client  *ssh.Client // the last hop
	closers []io.Closer
	once    sync.Once
}

func (l *sshLink) next(ctx context.Context, address string) (net.Conn, error) {
	if l.client == nil {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return prompt(conn), nil
	}
	return l.client.DialContext(ctx, "tcp", address)
}

func (l *sshLink) close() {
	l.once.Do(func() {
		for _, c := range slices.Backward(l.closers) {
			c.Close()
		}
	})
}

// keepAlive ends the connection when the other side has gone without a word.
func (l *sshLink) keepAlive(every time.Duration) {
	ended := make(chan struct{})
	go func() { l.client.Wait(); close(ended) }()
	answers, open := make(chan error, 1), 0
	for tick := time.NewTicker(every); ; {
		select {
		case <-ended:
			tick.Stop()
			return
		case err := <-answers:
			open = 0
			if err != nil {
				l.close()
			}
		case <-tick.C:
			if open++; open > lostAfter {
				l.close()
			} else if open == 1 {
				go func() {
					_, _, err := l.client.SendRequest("keepalive@openssh.com", true, nil)
					answers <- err
				}()
			}
		}
	}
}

func (l *sshLink) start(line string) (*process, error) {
	s, err := l.client.NewSession()
	if err != nil {
		return nil, err
	}
	p := &process{stderr: &tail{}}
	s.Stderr = p.stderr
	if p.stdin, err = s.StdinPipe(); err == nil {
		p.stdout, err = s.StdoutPipe()
	}
	if err == nil {
		err = s.Start(line)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	p.kill = func() { s.Signal(ssh.SIGTERM); s.Close() }
	p.wait = func() (int, error) {
		err := s.Wait()
		var exit *ssh.ExitError
		if errors.As(err, &exit) && exit.Signal() == "" {
			return exit.ExitStatus(), nil
		}
		return 0, err
	}
	return p, nil
}

// reason leaves out what the message says already.
func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}
