package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// keyAlgorithms are what is asked for where nothing is known, in OpenSSH's order.
var keyAlgorithms = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
	ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
}

// certificateAlgorithms are asked for where an authority is known, and not
// elsewhere: the key behind a certificate may be known while its authority is not.
var certificateAlgorithms = []string{
	ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01, ssh.CertAlgoECDSA521v01,
	ssh.CertAlgoSKED25519v01, ssh.CertAlgoSKECDSA256v01, ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01,
}

// checker proves one host by its key.
type checker struct {
	host   host
	db     *knownhosts.HostKeyDB
	accept bool
	record func(h host, key ssh.PublicKey) error

	seen bool  // a key was offered: the server is alive
	err  error // what was wrong with it
}

func (d *Dialer) checker(h host) (*checker, error) {
	var files []string
	for _, path := range slices.Concat(h.known, h.knownGlobally) {
		if st, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || (err == nil && !st.Mode().IsRegular()) {
			continue // OpenSSH, too, takes /dev/null for none
		} else if err != nil {
			return nil, err
		}
		files = append(files, path)
	}
	db, err := d.known.read(files)
	if err != nil {
		return nil, hint("mend or remove that line", "%s", strings.TrimPrefix(err.Error(), "knownhosts: "))
	}
	return &checker{host: h, db: db, accept: d.AcceptNew, record: d.recordKey}, nil
}

// knownKeys are the files of known keys that were read, each set of them once: a
// fleet's may have as many lines as it has hosts.
type knownKeys struct {
	mu  sync.Mutex
	all map[string]*knownhosts.HostKeyDB
}

func (k *knownKeys) read(files []string) (*knownhosts.HostKeyDB, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name := strings.Join(files, "\x00")
	if db := k.all[name]; db != nil {
		return db, nil
	}
	db, err := knownhosts.NewDB(files...)
	if err != nil {
		return nil, err
	}
	if k.all == nil {
		k.all = map[string]*knownhosts.HostKeyDB{}
	}
	k.all[name] = db
	return db, nil
}

// places are the names under which known_hosts may have the host: a line
// without a port is good for all ports if none has this one.
func (c *checker) places() []string {
	name := c.host.lookup()
	all := []string{name}
	if h, port, err := net.SplitHostPort(name); err == nil && port != "22" {
		all = append(all, net.JoinHostPort(h, "22"))
	}
	return all
}

// algorithms asks for the kinds of key that are known of the host first: any
// one of its keys is enough, and it shows one only.
func (c *checker) algorithms() []string {
	if c.host.keyAlgorithms != "" {
		return algorithmList(c.host.keyAlgorithms, c.known())
	}
	return c.known()
}

func (c *checker) known() []string {
	var all []string
	add := func(kinds ...string) {
		for _, a := range kinds {
			if !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	for _, place := range c.places() {
		for _, key := range c.db.HostKeys(place) {
			switch {
			case key.Cert: // an authority signs keys of any kind
				add(certificateAlgorithms...)
			case key.Type() == ssh.KeyAlgoRSA:
				add(ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
			case slices.Contains(keyAlgorithms, key.Type()):
				add(key.Type())
			}
		}
	}
	add(keyAlgorithms...)
	return all
}

// algorithmList reads a list of algorithms, or a change of the usual one.
func algorithmList(text string, usual []string) []string {
	kind := text[0]
	if strings.IndexByte("+-^", kind) >= 0 {
		text = text[1:]
	}
	patterns := strings.Split(text, ",")
	switch kind {
	case '-':
		return slices.DeleteFunc(slices.Clone(usual), func(a string) bool { return matchList(patterns, a) })
	case '+':
		return append(slices.Clone(usual), patterns...)
	case '^':
		rest := slices.DeleteFunc(slices.Clone(usual), func(a string) bool { return matchList(patterns, a) })
		return append(patterns, rest...)
	}
	return patterns
}

// check is called by the handshake with the key that the host proved to have.
func (c *checker) check(_ string, remote net.Addr, key ssh.PublicKey) error {
	c.seen = true
	c.err = c.judge(key)
	return c.err
}

func (c *checker) judge(key ssh.PublicKey) error {
	var known []xknownhosts.KnownKey
	var bad error // a certificate: expired, for another host, by another authority
	for _, place := range c.places() {
		err := c.db.HostKeyCallback()(place, &net.TCPAddr{IP: net.IPv4zero}, key)
		var (
			unknown *xknownhosts.KeyError
			revoked *xknownhosts.RevokedError
		)
		switch {
		case err == nil:
			return nil
		case errors.As(err, &revoked):
			return hint("do not connect to it; ask whoever put that line there", "the key of %s is revoked: %s:%d (%s)", c.host.lookup(), revoked.Revoked.Filename, revoked.Revoked.Line, ssh.FingerprintSHA256(key))
		case errors.As(err, &unknown):
			known = append(known, unknown.Want...)
		case bad == nil || !strings.Contains(err.Error(), "no authorities"):
			bad = err
		}
	}
	if bad != nil {
		return hint(c.howToCheck(key), "the certificate of %s is not good: %s", c.host.lookup(), strings.TrimPrefix(bad.Error(), "ssh: "))
	}
	if len(known) > 0 && !c.onlyAuthorities() {
		k := known[0]
		return hint(c.howToCheck(key)+"; if it is right, remove the old one: ssh-keygen -R "+quoteName(c.host), "the key of %s is not the one that is known: it has %s %s, %s:%d says %s; somebody may be in between",
			c.host.lookup(), key.Type(), ssh.FingerprintSHA256(key), k.Filename, k.Line, ssh.FingerprintSHA256(k.Key))
	}
	if c.accept {
		return c.record(c.host, key)
	}
	return hint(c.howToCheck(key)+"; if it is right: --accept-new", "the key of %s is not known: %s %s", c.host.lookup(), key.Type(), ssh.FingerprintSHA256(key))
}

// onlyAuthorities reports that no key of the host is known, but whose word for
// one would be taken. A key without a certificate is a new one then.
func (c *checker) onlyAuthorities() bool {
	for _, place := range c.places() {
		for _, key := range c.db.HostKeys(place) {
			if !key.Cert {
				return false
			}
		}
	}
	return true
}

func (c *checker) howToCheck(key ssh.PublicKey) string {
	kind := strings.TrimPrefix(key.Type(), "ssh-")
	if strings.HasPrefix(kind, "ecdsa") {
		kind = "ecdsa"
	}
	if cert, ok := key.(*ssh.Certificate); ok {
		return "check it on the host: ssh-keygen -Lf /etc/ssh/ssh_host_" + strings.TrimPrefix(cert.Key.Type(), "ssh-") + "_key-cert.pub"
	}
	return "compare with what the host itself says: ssh-keygen -lf /etc/ssh/ssh_host_" + kind + "_key.pub"
}

func quoteName(h host) string { return "'" + xknownhosts.Normalize(h.lookup()) + "'" }

// recorder keeps two hosts from being written over each other, and one from
// being written twice, or with two keys: known_hosts is read once a run, and
// what was recorded since is known here only.
type recorder struct {
	mu   sync.Mutex
	done map[string]string // the key, by file and name
}

func (d *Dialer) recordKey(h host, key ssh.PublicKey) error {
	if _, ok := key.(*ssh.Certificate); ok || d.Record == nil || len(h.known) == 0 {
		return fmt.Errorf("the key of %s is not known, and there is no file to record it in", h.lookup())
	}
	path, name := h.known[0], xknownhosts.Normalize(h.lookup())
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	line := name
	if h.hash {
		line = xknownhosts.HashHostname(name)
	}
	line += " " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	d.recorder.mu.Lock()
	defer d.recorder.mu.Unlock()
	once, proven := path+"\x00"+name, string(key.Marshal())
	if before, ok := d.recorder.done[once]; ok && before != proven {
		return hint("ssh-keygen -lf "+path+" says what was recorded; compare with what the host itself says", "the key of %s is not the one that was recorded a moment ago: it has %s %s now; somebody may be in between", h.lookup(), key.Type(), ssh.FingerprintSHA256(key))
	} else if ok {
		return nil
	}
	if err := d.Record(path, []byte(line)); err != nil {
		return fmt.Errorf("the key of %s cannot be recorded: %w", h.lookup(), err)
	}
	if d.recorder.done == nil {
		d.recorder.done = map[string]string{}
	}
	d.recorder.done[once] = proven
	return nil
}
