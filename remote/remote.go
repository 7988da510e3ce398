// Package remote runs this program on another machine over SSH: it finds the
// way there in the user's configuration, proves the machine by its key, carries
// the program over if it is not there yet, and runs it there.
//
// It will not run anything else there, checks every host key, and writes
// nothing here: a new key is handed to Dialer.Record. It is the only package
// that knows SSH.
package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Dialer reaches hosts. It may be used by many at a time; its fields must not
// change meanwhile.
type Dialer struct {
	Config    string        // an ssh_config to use instead of the user's and the system's
	Command   []string      // an ssh to start, in place of our own SSH
	Timeout   time.Duration // for connection and handshake; 0: as configured, or 10 s
	Become    bool          // run as root, by sudo -n
	AcceptNew bool          // record the key of a host of which none is known
	Verb      string        // the argument by which the program knows that it is called from afar

	// Ask reads a passphrase from a person; nil if there is nobody.
	Ask func(prompt string) ([]byte, error)
	// Record appends a line to a known_hosts file.
	Record func(path string, line []byte) error

	every    time.Duration // between keepalives, 0 as usual
	files    configFiles
	known    knownKeys
	secrets  secrets
	recorder recorder
	jumps    jumps
}

// Close ends the connections to hosts that were passed on the way to others.
func (d *Dialer) Close() { d.jumps.close() }

// DefaultTimeout is for connection and handshake together, over all jumps.
const DefaultTimeout = 10 * time.Second

// Answer is what the program said there.
type Answer struct {
	Output []byte // of the program
	Exit   int    // its exit status
}

// Error says why a host could not be asked, and what to do about it.
type Error struct {
	Host string
	Hint string
	Err  error
}

func (e *Error) Error() string {
	text := strings.TrimPrefix(e.Err.Error(), e.Host+": ")
	return e.Host + ": " + text
}
func (e *Error) Unwrap() error { return e.Err }

// hinted is an error with a way out.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

func hint(way, format string, args ...any) error {
	return &hinted{fmt.Errorf(format, args...), way}
}

// Run runs the program on a host and hands it the request. When ctx ends, the
// program there is told to stop and has Grace to say what it did.
// The error is always an *Error: then nobody knows more than what it says.
func (d *Dialer) Run(ctx context.Context, name string, request []byte) (Answer, error) {
	a, err := d.run(ctx, name, request)
	if err == nil {
		return a, nil
	}
	var (
		h *hinted
		u *unhonoured
	)
	e := &Error{Host: name, Err: err}
	switch {
	case errors.As(err, &h):
		e.Hint = h.hint
	case errors.As(err, &u):
		e.Hint = "let the system's ssh make the connection: --ssh-command ssh"
	}
	return a, e
}

func (d *Dialer) run(ctx context.Context, name string, request []byte) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, err
	}
	l, err := d.link(ctx, name)
	if err != nil {
		return Answer{}, err
	}
	defer l.close()
	return d.carry(ctx, l, request)
}

// link connects to a host: by our own SSH, or by the command that was named.
func (d *Dialer) link(ctx context.Context, name string) (link, error) {
	if len(d.Command) > 0 {
		if err := CheckName(name); err != nil {
			return nil, err
		}
		return d.command(name), nil
	}
	h, err := d.resolve(name)
	if err != nil {
		return nil, err
	}
	return d.dial(ctx, h)
}

// link is a connection over which commands are started.
type link interface {
	// start runs a command line by the remote user's shell.
	start(line string) (*process, error)
	close()
}
