package remote

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// jumps are the connections to hosts that are passed on the way to others.
// Hosts behind the same one share it: it sees one login, and not one for each.
type jumps struct {
	mu  sync.Mutex
	all map[string]*jump // by the whole way
}

type jump struct {
	made chan struct{} // closed when the rest is set
	link *sshLink
	err  error
	late time.Duration // the limit of its maker, if that was too short; or 0
}

// wait waits until the jump is made, as long as that takes.
func (j *jump) wait(c *clock) error {
	c.pause()
	defer c.resume()
	select {
	case <-j.made:
		return nil
	case <-c.Done():
		return c.Err()
	}
}

// take returns the jump for a way. If it is the caller's to make, mine is true.
func (js *jumps) take(way string) (j *jump, mine bool) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if j = js.all[way]; j != nil {
		return j, false
	}
	if js.all == nil {
		js.all = map[string]*jump{}
	}
	j = &jump{made: make(chan struct{})}
	js.all[way] = j
	return j, true
}

func (js *jumps) forget(way string) {
	js.mu.Lock()
	defer js.mu.Unlock()
	delete(js.all, way)
}

func (js *jumps) close() {
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, j := range js.all {
		select {
		case <-j.made:
			j.link.close()
		default: // its maker has a clock
		}
	}
}

// through connects to a host from the last of some jumps.
func (d *Dialer) through(c *clock, hops []host, h host) (_ net.Conn, dropped bool, err error) {
	l, err := d.jump(c, hops)
	if err != nil {
		return nil, false, err
	}
	conn, err := l.client.DialContext(c, "tcp", h.dial())
	if err != nil {
		dropped = closed(err) && c.Err() == nil
		return nil, dropped, c.up(h, hint(h.says(), "%s from %s: %w", h.dial(), hops[len(hops)-1].name, reason(err)))
	}
	return detach(conn), false, nil
}

// way tells apart connections that may not stand for each other: another
// configuration of the same machine may ask for another proof of who it is, for
// other ciphers, or for another key of ours.
func (h host) way() string {
	return fmt.Sprintf("%#v\n", []any{h.user, h.dial(), h.lookup(), h.known, h.knownGlobally, h.keyAlgorithms, h.crypto, h.network, h.from, h.keys, h.certs, h.only, h.agent})
}

// jump is the connection to the last of some hops. Whoever comes first makes
// it, and others wait, as long as that takes; one that failed or broke is made
// anew by whoever comes next.
func (d *Dialer) jump(c *clock, hops []host) (*sshLink, error) {
	var way strings.Builder
	for _, h := range hops {
		way.WriteString(h.way())
	}
	j, mine := d.jumps.take(way.String())
	for !mine {
		if err := j.wait(c); err != nil {
			return nil, err
		}
		if j.err == nil || j.late >= c.limit || j.late == 0 {
			return j.link, j.err
		}
		j, mine = d.jumps.take(way.String()) // its maker had less time than this host has
	}
	defer close(j.made)
	last := hops[len(hops)-1]
	if j.link, j.err = d.reach(c, hops[:len(hops)-1], last); j.err != nil {
		j.err = hintOf(j.err, "jump %s: %w", last.name, j.err)
		if context.Cause(c) == errTime {
			j.late = c.limit
		}
		d.jumps.forget(way.String())
		return nil, j.err
	}
	go func() {
		j.link.client.Wait()
		d.jumps.forget(way.String())
	}()
	return j.link, nil
}

// detached is a connection through a jump. Its Read ends when it is closed,
// even if the jump is dead and does not say that it has heard of it.
type detached struct {
	net.Conn
	in *io.PipeReader
}

func detach(conn net.Conn) detached {
	in, feed := io.Pipe()
	go func() {
		_, err := io.Copy(feed, conn)
		feed.CloseWithError(err) // nil is the end
	}()
	return detached{conn, in}
}

func (d detached) Read(p []byte) (int, error) { return d.in.Read(p) }

func (d detached) Close() error {
	d.in.Close()
	go d.Conn.Close() // a dead jump does not take it
	return nil
}
