package main

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/term"
)

// terminal asks the person for a passphrase, if there is one.
type terminal struct {
	mu    sync.Mutex
	fd    int
	state *term.State // while it does not echo
}

// asker is nil if there is no terminal to ask on.
func (t *terminal) asker() func(string) ([]byte, error) {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return nil
	}
	tty.Close()
	return t.ask
}

func (t *terminal) ask(prompt string) ([]byte, error) {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return nil, err
	}
	defer tty.Close()
	fd := int(tty.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return nil, err
	}
	t.set(fd, state)
	defer t.set(0, nil)
	fmt.Fprint(os.Stderr, "\r\x1b[K"+prompt)
	phrase, err := term.ReadPassword(fd)
	fmt.Fprintln(os.Stderr)
	return phrase, err
}

func (t *terminal) set(fd int, state *term.State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fd, t.state = fd, state
}

// restore gives the terminal its echo back, if an interrupt came while a
// person was typing.
func (t *terminal) restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != nil {
		term.Restore(t.fd, t.state)
	}
}
