package remote

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// host is one machine as the configuration describes it.
type host struct {
	name          string // as given
	address, port string
	addressAt     string // FILE:LINE of HostName, "" if nothing says it
	user          string
	keyAlias      string // HostKeyAlias
	keys, certs   []file // IdentityFile, CertificateFile
	only          bool   // IdentitiesOnly
	agent         string // a socket, "" for none
	known         []string
	knownGlobally []string
	keyAlgorithms string
	crypto        ssh.Config // Ciphers, MACs, KexAlgorithms
	network       string     // tcp, tcp4, tcp6
	from          net.IP     // BindAddress
	hash          bool       // HashKnownHosts
	timeout       time.Duration
	jumps         []host   // to be passed first, in order
	passedOver    []string // lines that are not followed, in case it does not work
}

// file is a path and who named it.
type file struct{ path, at string }

func (h host) dial() string { return net.JoinHostPort(h.address, h.port) }

// lookup is what known_hosts has the host under.
func (h host) lookup() string {
	if h.keyAlias != "" {
		return net.JoinHostPort(h.keyAlias, "22")
	}
	return h.dial()
}

const maxJumps = 8

// resolve finds out how a host is reached: [user@]host[:port] and what the
// configuration says.
func (d *Dialer) resolve(name string) (host, error) { return d.resolveJump(name, true, 0) }

func (d *Dialer) resolveJump(name string, follow bool, depth int) (host, error) {
	if depth > maxJumps {
		return host{}, fmt.Errorf("%s: more than %d jumps, or a jump in a circle", name, maxJumps)
	}
	t, err := parseTarget(name)
	if err != nil {
		return host{}, err
	}
	e, err := d.evaluate(t)
	if err != nil {
		return host{}, err
	}
	h, err := e.host(name)
	if err != nil || !follow {
		return h, err
	}
	h.jumps, err = d.resolveJumps(e, depth)
	return h, err
}

func (d *Dialer) evaluate(t target) (*evaluation, error) {
	e := &evaluation{files: &d.files, home: home(), local: localUser(), name: t.host, got: map[string][]directive{}}
	if t.user != "" {
		e.take(directive{key: "user", args: []string{t.user}})
	}
	if t.port != "" {
		e.take(directive{key: "port", args: []string{t.port}})
	}
	pass := func() error {
		if d.Config != "" {
			if _, err := os.Stat(d.Config); err != nil {
				return err
			}
			return e.file(d.Config, true, 0)
		}
		if err := e.file(filepath.Join(e.home, ".ssh", "config"), true, 0); err != nil {
			return err
		}
		return e.file("/etc/ssh/ssh_config", false, 0)
	}
	if err := pass(); err != nil {
		return nil, err
	}
	if e.again {
		e.final = true
		return e, pass()
	}
	return e, nil
}

// host makes the values of the evaluation into a host.
func (e *evaluation) host(name string) (host, error) {
	h := host{name: name, address: e.hostName(), port: e.first("port", "22"), user: e.first("user", e.local), keyAlias: e.first("hostkeyalias", ""), keyAlgorithms: e.first("hostkeyalgorithms", "")}
	if !validPort(h.port) {
		return h, fmt.Errorf("%s: Port %s is not a port", e.got["port"][0].at, h.port)
	}
	if d := e.got["hostname"]; len(d) > 0 {
		h.addressAt = d[0].at
	}
	h.only, h.hash = yes(e.first("identitiesonly", "no")), yes(e.first("hashknownhosts", "no"))
	x := e.expander(h)
	h.keys, h.certs = x.files(e.got["identityfile"]), x.files(e.got["certificatefile"])
	if len(e.got["identityfile"]) == 0 {
		for _, n := range []string{"id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"} {
			h.keys = append(h.keys, file{path: filepath.Join(e.home, ".ssh", n)})
		}
	}
	h.known = x.paths(e.got["userknownhostsfile"], "~/.ssh/known_hosts", "~/.ssh/known_hosts2")
	h.knownGlobally = x.paths(e.got["globalknownhostsfile"], "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
	h.agent = x.agent(e.first("identityagent", "SSH_AUTH_SOCK"))
	if t := e.first("connecttimeout", "none"); t != "none" && t != "0" {
		var err error
		if h.timeout, err = seconds(t); err != nil {
			return h, fmt.Errorf("%s: ConnectTimeout %s is not a time", e.got["connecttimeout"][0].at, t)
		}
	}
	h.passedOver = e.passedOver()
	if err := e.network(&h); err != nil {
		return h, err
	}
	if err := e.crypto(&h); err != nil {
		return h, err
	}
	return h, e.refused()
}

func (e *evaluation) network(h *host) error {
	family := e.first("addressfamily", "any")
	h.network = map[string]string{"any": "tcp", "inet": "tcp4", "inet6": "tcp6"}[strings.ToLower(family)]
	if h.network == "" {
		return fmt.Errorf("%s: AddressFamily %s is none", e.got["addressfamily"][0].at, family)
	}
	if d := e.got["bindaddress"]; len(d) > 0 {
		if h.from = net.ParseIP(d[0].args[0]); h.from == nil {
			return fmt.Errorf("%s: BindAddress %s is not an address", d[0].at, d[0].args[0])
		}
	}
	return nil
}

// crypto restricts what is agreed on with the host, as somebody's policy may
// ask for. A list of which nothing is left is an error here, and not a host
// with which nothing can be agreed on.
func (e *evaluation) crypto(h *host) error {
	var usual ssh.Config
	usual.SetDefaults()
	for _, list := range []struct {
		key   string
		usual []string
		into  *[]string
	}{
		{"Ciphers", usual.Ciphers, &h.crypto.Ciphers},
		{"MACs", usual.MACs, &h.crypto.MACs},
		{"KexAlgorithms", usual.KeyExchanges, &h.crypto.KeyExchanges},
	} {
		d := e.got[strings.ToLower(list.key)]
		if len(d) == 0 {
			continue
		}
		if d[0].args[0] != "" {
			*list.into = algorithmList(d[0].args[0], list.usual)
		}
		known := h.crypto
		known.SetDefaults() // drops what the library does not have
		if len(*list.into) == 0 || len(known.Ciphers) == 0 || len(known.MACs) == 0 || len(known.KeyExchanges) == 0 {
			return &unhonoured{d[0].at, list.key + " " + d[0].args[0]}
		}
	}
	return nil
}

// refused names a line that would change the way to the host and that cannot
// be followed.
func (e *evaluation) refused() error {
	if d := e.got["canonicalizehostname"]; len(d) > 0 && strings.ToLower(d[0].args[0]) != "no" {
		return &unhonoured{d[0].at, "CanonicalizeHostname"}
	}
	if d := e.got["revokedhostkeys"]; len(d) > 0 && strings.ToLower(d[0].args[0]) != "none" {
		return &unhonoured{d[0].at, "RevokedHostKeys"} // or a revoked key would be taken for a good one
	}
	if d := e.got["bindinterface"]; len(d) > 0 {
		return &unhonoured{d[0].at, "BindInterface"}
	}
	return nil
}

// passedOver lists what is not followed and in most cases not needed: the
// ssh_config of a distribution has GSSAPI switched on for everybody.
func (e *evaluation) passedOver() []string {
	var all []string
	for key, name := range map[string]string{"gssapiauthentication": "GSSAPIAuthentication", "stricthostkeychecking": "StrictHostKeyChecking", "knownhostscommand": "KnownHostsCommand", "verifyhostkeydns": "VerifyHostKeyDNS", "pkcs11provider": "PKCS11Provider", "pubkeyacceptedalgorithms": "PubkeyAcceptedAlgorithms"} {
		if d := e.got[key]; len(d) > 0 {
			if v := strings.ToLower(d[0].args[0]); v != "no" && v != "none" && (key != "stricthostkeychecking" || (v != "yes" && v != "ask")) || (key == "stricthostkeychecking" && v == "no") {
				all = append(all, fmt.Sprintf("%s: %s is not followed", d[0].at, name))
			}
		}
	}
	return all
}

// resolveJumps resolves ProxyJump. Of several hops the first one's own configuration
// says how it is reached; the others are reached through the one before.
func (d *Dialer) resolveJumps(e *evaluation, depth int) ([]host, error) {
	jump := e.got["proxyjump"]
	if c := e.got["proxycommand"]; len(c) > 0 && strings.ToLower(c[0].args[0]) != "none" {
		return nil, &unhonoured{c[0].at, "ProxyCommand"}
	}
	if len(jump) == 0 || strings.ToLower(jump[0].args[0]) == "none" {
		return nil, nil
	}
	var all []host
	for i, name := range strings.Split(jump[0].args[0], ",") {
		name = strings.NewReplacer("%%", "%", "%h", e.name).Replace(name)
		h, err := d.resolveJump(name, i == 0, depth+1)
		if err != nil {
			var u *unhonoured
			if errors.As(err, &u) {
				return nil, err
			}
			return nil, fmt.Errorf("%s: ProxyJump: %w", jump[0].at, err)
		}
		all = append(append(all, h.jumps...), h)
	}
	return all, nil
}

// expander replaces tokens, variables and ~ in the values that may have them.
type expander struct {
	home   string
	tokens *strings.Replacer
}

func (e *evaluation) expander(h host) expander {
	here, _ := os.Hostname()
	short, _, _ := strings.Cut(here, ".")
	key := h.keyAlias
	if key == "" {
		key = e.name
	}
	jump := e.first("proxyjump", "")
	return expander{e.home, strings.NewReplacer("%%", "%", "%d", e.home, "%h", h.address, "%i", strconv.Itoa(os.Getuid()), "%k", key, "%L", short, "%l", here, "%n", e.name, "%p", h.port, "%r", h.user, "%u", e.local, "%j", jump)}
}

func (x expander) path(p string) string {
	for {
		i := strings.Index(p, "${")
		if i < 0 {
			break
		}
		end := strings.IndexByte(p[i:], '}')
		if end < 0 {
			break
		}
		p = p[:i] + os.Getenv(p[i+2:i+end]) + p[i+end+1:]
	}
	return x.tokens.Replace(expandHome(p, x.home))
}

func (x expander) files(all []directive) []file {
	var some []file
	for _, d := range all {
		if strings.ToLower(d.args[0]) != "none" {
			some = append(some, file{x.path(d.args[0]), d.at})
		}
	}
	return some
}

func (x expander) paths(d []directive, otherwise ...string) []string {
	names := otherwise
	if len(d) > 0 {
		names = d[0].args
	}
	var all []string
	for _, n := range names {
		if strings.ToLower(n) != "none" {
			all = append(all, x.path(n))
		}
	}
	return all
}

func (x expander) agent(value string) string {
	switch {
	case strings.ToLower(value) == "none":
		return ""
	case value == "SSH_AUTH_SOCK":
		return os.Getenv("SSH_AUTH_SOCK")
	case strings.HasPrefix(value, "$") && !strings.HasPrefix(value, "${"):
		return os.Getenv(value[1:])
	}
	return x.path(value)
}

func yes(s string) bool { return strings.ToLower(s) == "yes" || strings.ToLower(s) == "true" }

// seconds reads a time as sshd_config(5) has it: 90, 1m30s.
func seconds(s string) (time.Duration, error) {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	return time.ParseDuration(strings.ToLower(s))
}

// home is $HOME, as for the other files of this program, or the account's.
func home() string {
	if h := os.Getenv("HOME"); h != "" {
		return h
	}
	if u, err := user.Current(); err == nil {
		return u.HomeDir
	}
	return "/"
}

func localUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}
