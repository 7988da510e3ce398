package remote

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// A host that has not answered for lostAfter times keepalive is gone.
const (
	keepalive = 10 * time.Second
	lostAfter = 3
)

// dial connects to a host within one time, jumps and handshakes included.
func (d *Dialer) dial(ctx context.Context, h host) (link, error) {
	c := newClock(ctx, cmp.Or(d.Timeout, h.timeout, DefaultTimeout))
	defer c.stop()
	l, err := d.reach(c, h.jumps, h)
	switch {
	case err == nil:
		return l, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, err
}

// reach connects to a host through its jumps. A server that is asked by many at
// once drops some (MaxStartups) before it says a word; they come again a little
// later, each after a time of its own.
func (d *Dialer) reach(c *clock, jumps []host, h host) (*sshLink, error) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		l, dropped, err := d.try(c, jumps, h)
		if err == nil || !dropped {
			return l, err
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-c.Done():
			return nil, c.up(h, err)
		}
	}
}

// up says so if a host failed because the time was up.
func (c *clock) up(h host, err error) error {
	if context.Cause(c) != errTime {
		return err
	}
	return hint("is that the right address? "+h.says(), "no connection within %s (--connect-timeout): %w", c.limit, err)
}

// says tells where the address comes from.
func (h host) says() string {
	if h.addressAt == "" {
		return "ssh -v -p " + h.port + " " + h.user + "@" + h.address
	}
	return h.addressAt + " says " + h.address
}

// try makes one attempt. dropped says that a server closed the connection
// before it had shown a key.
func (d *Dialer) try(c *clock, jumps []host, h host) (_ *sshLink, dropped bool, err error) {
	conn, dropped, err := d.connect(c, jumps, h)
	if err != nil {
		return nil, dropped, err
	}
	stop := c.onEnd(func() { conn.Close() })
	client, dropped, err := d.handshake(c, conn, h)
	if !stop() && err == nil {
		err = errTime
	}
	if err != nil {
		conn.Close()
		return nil, dropped && c.Err() == nil, c.up(h, err)
	}
	l := &sshLink{client}
	go l.keepAlive(cmp.Or(d.every, keepalive))
	return l, false, nil
}

// connect opens a connection to a host. dropped says that a jump broke that was
// there before.
func (d *Dialer) connect(c *clock, jumps []host, h host) (_ net.Conn, dropped bool, err error) {
	if len(jumps) > 0 {
		return d.through(c, jumps, h)
	}
	dialer := net.Dialer{}
	if h.from != nil {
		dialer.LocalAddr = &net.TCPAddr{IP: h.from}
	}
	conn, err := dialer.DialContext(c, h.network, h.dial())
	if err != nil {
		return nil, false, c.up(h, hint(h.says(), "%s: %w", h.dial(), reason(err)))
	}
	return prompt(conn), false, nil
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
		Config: h.crypto, User: h.user, Auth: []ssh.AuthMethod{ssh.PublicKeysCallback(creds.signers)},
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

// sshLink is a connection of our own to a host, or to a jump.
type sshLink struct{ client *ssh.Client }

func (l *sshLink) close() { l.client.Close() }

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
