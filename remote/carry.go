package remote

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

const (
	// Grace is how long a program that was told to stop may take to finish a commit.
	Grace = 30 * time.Second
	// the first word of a shell: a home directory may be slow, or never answer
	firstWord = 45 * time.Second
	maxBanner = 1 << 20   // what a shell's start-up files may print
	maxAnswer = 256 << 20 // bytes
)

// carry starts the program on the host, after it was brought there if need be.
func (d *Dialer) carry(ctx context.Context, l link, request []byte) (Answer, error) {
	p, err := own()
	if err != nil {
		return Answer{}, err
	}
	brought := false
	for range 4 {
		how, proof := bySum, p.sum
		if brought {
			how, proof = bySHA256, p.digest
		}
		c, err := d.begin(ctx, l, p, how)
		if err != nil {
			return Answer{}, err
		}
		switch c.word {
		case "hello":
			if c.rest == proof {
				return c.converse(ctx, request)
			}
			c.stop() // not what its folder says: a damaged disk, or somebody's work
			if brought {
				return Answer{}, fmt.Errorf("the program there says that it is %.12s…, not %.12s…", c.rest, proof)
			}
			err = d.bring(ctx, l, p, "")
			brought = true
		case "missing":
			if brought {
				return Answer{}, errors.New("the program was brought there, and is not there")
			}
			err = d.bring(ctx, l, p, c.rest)
			brought = true
		case "other":
			p, err = sibling(p, c.rest)
		case "refuse":
			err = errors.New(c.rest)
		default:
			err = fmt.Errorf("an answer that nobody expected: %s %s", c.word, c.rest)
		}
		if err != nil {
			return Answer{}, err
		}
	}
	return Answer{}, errors.New("the program cannot be brought there")
}

func (d *Dialer) begin(ctx context.Context, l link, p *program, how string) (*conversation, error) {
	become := "no"
	if d.Become {
		become = "sudo"
	}
	nonce := rand.Text()
	c, err := start(ctx, l, nonce, shellLine(startScript, nonce, p.digest, p.machines, become, d.Verb, how))
	if err != nil && d.Become && c != nil && strings.Contains(c.stderr.String(), "sudo") {
		return nil, hint("allow it there in sudoers (NOPASSWD), or connect as root", "--become: %s", c.stderr)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// bring uploads the program over the standard input of a command, packed if the
// host has what unpacks it.
func (d *Dialer) bring(ctx context.Context, l link, p *program, packer string) error {
	data := p.data
	if packer == "gzip" {
		data = p.packed()
	} else {
		packer = "no"
	}
	for range 2 {
		nonce := rand.Text()
		open := context.AfterFunc(ctx, l.close)
		proc, err := l.start(shellLine(uploadScript, nonce, p.digest, p.machines, strconv.Itoa(len(p.data)), packer))
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, proc.kill)
		go func() {
			io.Copy(proc.stdin, bytes.NewReader(data))
			proc.stdin.Close()
		}()
		c := &conversation{process: proc, out: newReader(proc.stdout)}
		err = c.listen(nonce)
		stop()
		open()
		c.stop()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("while the program was brought there: %w", err)
		case c.word == "stored":
			return nil
		case c.word != "torn" && c.stderr.String() != "":
			return fmt.Errorf("%s: %s", c.rest, c.stderr)
		case c.word != "torn":
			return errors.New(c.rest)
		}
	}
	return errors.New("the program did not arrive as it was sent, twice")
}

// conversation is a command that has said its first word.
type conversation struct {
	*process
	out        *bufio.Reader
	word, rest string
}

var errSilent = fmt.Errorf("its shell said nothing for %s", firstWord)

// start starts a command and waits for its word. Neither a host that opens no
// session nor a shell that hangs holds us longer than firstWord.
func start(ctx context.Context, l link, nonce, line string) (*conversation, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, firstWord, errSilent)
	defer cancel()
	open := context.AfterFunc(ctx, l.close)
	proc, err := l.start(line)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	c := &conversation{process: proc, out: newReader(proc.stdout)}
	running := context.AfterFunc(ctx, proc.kill)
	err = c.listen(nonce)
	if r, o := running(), open(); !r || !o {
		c.stop()
		return nil, context.Cause(ctx)
	}
	return c, err
}

// listen skips what start-up files print and finds the line meant for us.
func (c *conversation) listen(nonce string) error {
	mark := "sgpatch-" + nonce + " "
	var heard int
	for {
		line, err := c.out.ReadString('\n')
		if i := strings.Index(line, mark); i >= 0 && err == nil {
			c.word, c.rest, _ = strings.Cut(strings.TrimSpace(line[i+len(mark):]), " ")
			return nil
		}
		if heard += len(line); heard > maxBanner {
			c.kill()
			return errors.New("its shell prints and prints, and does not start the program")
		}
		if err != nil {
			exit, werr := c.wait()
			return c.silence(exit, werr)
		}
	}
}

// silence is the error for a command that ended without its word.
func (c *conversation) silence(exit int, err error) error {
	said := c.stderr.String()
	switch {
	case err != nil && said == "":
		return fmt.Errorf("the connection was lost: %w", err)
	case err != nil:
		return errors.New(said)
	case said == "":
		return fmt.Errorf("the program was not started; the shell there ended with %d and said nothing", exit)
	}
	return fmt.Errorf("the program was not started: %s", said)
}

// stop ends a command that is of no use any more, whatever is still being
// written to it.
func (c *conversation) stop() {
	c.kill()
	go func() { // frees what belongs to it, whenever that is
		io.Copy(io.Discard, c.out)
		c.wait()
	}()
}

// converse hands over the request and reads the answer. The program takes the
// end of its standard input for an interrupt: a commit that it has begun it
// finishes, and any other it does not begin.
func (c *conversation) converse(ctx context.Context, request []byte) (Answer, error) {
	done := make(chan struct{})
	defer close(done)
	go func() { // written and closed by one: a Close during a Write is a race
		c.stdin.Write(append(bytes.Clone(request), '\n')) // an error is one of reading, too
		select {
		case <-done:
		case <-ctx.Done():
			c.stdin.Close()
		}
	}()
	go func() {
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		select {
		case <-done:
		case <-time.After(Grace):
			c.kill()
		}
	}()
	output, err := io.ReadAll(io.LimitReader(c.out, maxAnswer))
	exit, werr := c.wait()
	if err == nil {
		err = werr
	}
	if err != nil {
		return Answer{Output: output}, hint("sgpatch status", "the connection was lost while it worked, and nobody heard what it did: %w", err)
	}
	if len(output) == 0 {
		return Answer{}, c.silence(exit, nil)
	}
	return Answer{output, exit}, nil
}

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, 64<<10) }
