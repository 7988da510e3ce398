package main

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/term"
)

// terminal asks the person for a passphrase, if there is one. When ctx ends, it
// does not wait for an answer.
type terminal struct{ ctx context.Context }

// asker is nil if there is no terminal to ask on.
func (t terminal) asker() func(string) ([]byte, error) {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return nil
	}
	tty.Close()
	return t.ask
}

func (t terminal) ask(prompt string) ([]byte, error) {
	if err := t.ctx.Err(); err != nil {
		return nil, err
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return nil, err
	}
	fd := int(tty.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return nil, err
	}
	fmt.Fprint(os.Stderr, "\r\x1b[K"+prompt)
	defer fmt.Fprintln(os.Stderr)
	type answer struct {
		phrase []byte
		err    error
	}
	typed := make(chan answer, 1)
	go func() {
		phrase, err := term.ReadPassword(fd)
		typed <- answer{phrase, err}
		tty.Close()
	}()
	select {
	case a := <-typed:
		return a.phrase, a.err
	case <-t.ctx.Done():
		term.Restore(fd, state) // it does not echo while it reads
		return nil, t.ctx.Err()
	}
}
