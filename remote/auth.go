package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// secrets are the keys that a passphrase opened, each asked for once a run.
type secrets struct {
	mu   sync.Mutex
	open map[string]ssh.Signer
	fail map[string]error
}

// credentials are what one connection offers, in OpenSSH's order: certificates,
// keys of the agent that the configuration names, the agent's others, files.
type credentials struct {
	d      *Dialer
	host   host
	clock  *clock
	leave  func()   // the agent
	tried  []string // for the message if none is accepted
	missed []string // why others were not offered
}

func (c *credentials) close() {
	if c.leave != nil {
		c.leave()
	}
}

func (c *credentials) signers() ([]ssh.Signer, error) {
	var held []ssh.Signer
	if c.host.agent != "" {
		var err error
		if held, err = c.fromAgent(); err != nil {
			c.missed = append(c.missed, "the agent at "+c.host.agent+" does not answer: "+err.Error())
		}
	}
	var keys, files []ssh.Signer
	for _, f := range c.host.keys {
		if a := heldBy(held, f.path); a != nil {
			keys = append(keys, a)
		} else if s, err := c.fromFile(f); err != nil {
			c.miss(f, err)
		} else {
			files = append(files, s)
		}
	}
	if !c.host.only {
		for _, a := range held {
			if find(keys, a.PublicKey()) == nil {
				keys = append(keys, a)
			}
		}
	}
	keys = append(keys, files...)
	all := append(c.certificates(slices.Concat(keys, held)), keys...)
	for _, s := range all {
		c.tried = append(c.tried, fmt.Sprintf("%s %s", s.PublicKey().Type(), ssh.FingerprintSHA256(s.PublicKey())))
	}
	return all, nil
}

func (c *credentials) fromAgent() ([]ssh.Signer, error) {
	conn, err := net.DialTimeout("unix", c.host.agent, c.clock.left())
	if err != nil {
		return nil, err
	}
	stop := c.clock.onEnd(func() { conn.Close() }) // one that waits for a person's consent, too
	c.leave = func() { stop(); conn.Close() }
	return agent.NewClient(conn).Signers()
}

func (c *credentials) miss(f file, err error) {
	if f.at == "" && errors.Is(err, os.ErrNotExist) {
		return // one of the usual names
	}
	text := f.path + ": " + err.Error()
	if errors.Is(err, os.ErrNotExist) {
		text = f.path + " does not exist"
	}
	if f.at != "" {
		text = f.at + ": " + text
	}
	c.missed = append(c.missed, text)
}

func find(all []ssh.Signer, key ssh.PublicKey) ssh.Signer {
	want := key.Marshal()
	for _, s := range all {
		if bytes.Equal(s.PublicKey().Marshal(), want) {
			return s
		}
	}
	return nil
}

// heldBy finds the agent's key for a file, which may be a public half, or a
// private one whose passphrase then nobody needs.
func heldBy(agent []ssh.Signer, path string) ssh.Signer {
	if len(agent) == 0 {
		return nil
	}
	for _, p := range []string{path, path + ".pub"} {
		text, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		key, _, _, _, err := ssh.ParseAuthorizedKey(text)
		if err == nil {
			return find(agent, key)
		}
		var locked *ssh.PassphraseMissingError
		if s, err := ssh.ParsePrivateKey(text); err == nil {
			return find(agent, s.PublicKey())
		} else if errors.As(err, &locked) && locked.PublicKey != nil {
			return find(agent, locked.PublicKey)
		}
	}
	return nil
}

// certificates are the named ones, and those that lie beside the keys.
func (c *credentials) certificates(keys []ssh.Signer) []ssh.Signer {
	var all []ssh.Signer
	files := slices.Clone(c.host.certs)
	for _, k := range c.host.keys {
		files = append(files, file{path: k.path + "-cert.pub"})
	}
	for _, f := range files {
		cert, err := readCertificate(f.path)
		if err != nil {
			c.miss(f, err)
			continue
		}
		key := find(keys, cert.Key)
		if key == nil {
			c.miss(f, errors.New("its key is not here"))
			continue
		}
		if s, err := ssh.NewCertSigner(cert, key); err == nil {
			all = append(all, s)
		}
	}
	return all
}

func readCertificate(path string) (*ssh.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil, err
	}
	cert, ok := key.(*ssh.Certificate)
	if !ok {
		return nil, errors.New("that is a key, not a certificate")
	}
	return cert, nil
}

// fromFile reads a key. One with a passphrase is offered by its public half;
// the passphrase is asked for only if the host wants to see a signature.
func (c *credentials) fromFile(f file) (ssh.Signer, error) {
	st, err := os.Stat(f.path)
	if err != nil {
		return nil, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("others may read it (mode %04o); chmod 600 it", st.Mode().Perm())
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	s, err := ssh.ParsePrivateKey(text)
	var locked *ssh.PassphraseMissingError
	if !errors.As(err, &locked) {
		return s, err
	}
	public := locked.PublicKey
	if public == nil { // an older format has it in clear only beside the key
		line, err := os.ReadFile(f.path + ".pub")
		if err != nil {
			return nil, errors.New("it has a passphrase, and its public half (.pub) is not beside it")
		}
		if public, _, _, _, err = ssh.ParseAuthorizedKey(line); err != nil {
			return nil, err
		}
	}
	if c.d.Ask == nil {
		return nil, errors.New("it has a passphrase, and there is no terminal to ask on; ssh-add it")
	}
	return &lockedKey{c, f.path, text, public}, nil
}

// lockedKey is a key whose passphrase is not asked for until it is needed.
type lockedKey struct {
	c      *credentials
	path   string
	text   []byte
	public ssh.PublicKey
}

func (k *lockedKey) PublicKey() ssh.PublicKey { return k.public }

func (k *lockedKey) Sign(r io.Reader, data []byte) (*ssh.Signature, error) {
	return k.SignWithAlgorithm(r, data, "")
}

func (k *lockedKey) SignWithAlgorithm(r io.Reader, data []byte, algorithm string) (*ssh.Signature, error) {
	s, err := k.open()
	if err != nil {
		return nil, err
	}
	if as, ok := s.(ssh.AlgorithmSigner); ok {
		return as.SignWithAlgorithm(r, data, algorithm)
	}
	return s.Sign(r, data)
}

// open asks, one host after the other; the clock of a handshake stands while a
// person types.
func (k *lockedKey) open() (ssh.Signer, error) {
	k.c.clock.pause()
	defer k.c.clock.resume()
	all := &k.c.d.secrets
	all.mu.Lock()
	defer all.mu.Unlock()
	if s := all.open[k.path]; s != nil {
		return s, nil
	}
	if err := all.fail[k.path]; err != nil {
		return nil, err
	}
	if all.open == nil {
		all.open, all.fail = map[string]ssh.Signer{}, map[string]error{}
	}
	var err error
	for range 3 {
		var phrase []byte
		if phrase, err = k.c.d.Ask("Passphrase for " + k.path + ": "); err != nil {
			break
		}
		var s ssh.Signer
		if s, err = ssh.ParsePrivateKeyWithPassphrase(k.text, phrase); err == nil {
			all.open[k.path] = s
			return s, nil
		}
	}
	all.fail[k.path] = fmt.Errorf("%s: %w", k.path, err)
	return nil, all.fail[k.path]
}

// refused is the message for a host that accepted none of it.
func (c *credentials) refused(err error) error {
	text := "no key for " + c.host.user + " was accepted"
	if len(c.tried) > 0 {
		text += "; offered: " + strings.Join(c.tried, ", ")
	} else {
		text += ": there was none to offer"
	}
	for _, m := range slices.Concat(c.missed, c.host.passedOver) {
		text += "; " + m
	}
	way := "see what ssh itself says: ssh -v -p " + c.host.port + " " + c.host.user + "@" + c.host.address
	if len(c.tried) > 5 {
		way = "name the right one (IdentityFile and IdentitiesOnly in ssh_config): a host gives up after some keys"
	}
	return hint(way, "%s (%s)", text, strings.TrimPrefix(err.Error(), "ssh: handshake failed: ssh: "))
}
