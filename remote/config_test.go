package remote

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sgpatch/fixtures/sshd"
)

// TestConfigAsOpenSSH reads configurations and holds what comes out against
// what OpenSSH makes of them (ssh -G).
func TestConfigAsOpenSSH(t *testing.T) {
	dir := t.TempDir()
	sshd.Write(t, dir+"/more/one", "User included\nHost b*\n  Port 2001\n")
	sshd.Write(t, dir+"/more/two", "Host *\n  ConnectTimeout 7\n")
	for name, c := range map[string]struct{ text, hosts string }{
		"first wins":        {"Host a\n  Port 1\nHost *\n  Port 2\n  User two\n", "a b me@a me@a:77"},
		"patterns":          {"Host gpu-? !gpu-3 x*y\n  User yes\nHost *\n  User no\n", "gpu-1 gpu-3 gpu-11 xy xaay xz"},
		"equals and quotes": {"Host=a\nHostName = \"real.name\"\n\tUser='with space'\n  PORT 5 # why\n", "a"},
		"host name":         {"Host *\n  HostName %h.example\nMatch host a.example\n  User matched\nMatch originalhost b\n  User original\n", "a b c"},
		"match user":        {"Host a\n  User root\nMatch user root,admin\n  Port 3\nMatch user !root,*\n  Port 4\n", "a b root@b admin@b"},
		"match all":         {"Match host a\n  Port 8\nMatch all\n  Port 9\n", "a b"},
		"match not":         {"Match !host a,b\n  Port 8\nMatch host * !user x\n  User q\n", "a b c x@c"},
		"match final":       {"Match final host a.real\n  User final\nMatch !final all\n  ConnectTimeout 4\nHost a\n  HostName a.real\nMatch final\n  Port 44\n", "a b"},
		"match canonical":   {"Match canonical\n  Port 8\nMatch !canonical\n  Port 9\n", "a"},
		"include":           {"Host a\n  Include " + dir + "/more/one\n  Port 5\nInclude " + dir + "/more/t* " + dir + "/none\nHost *\n  User later\n", "a b"},
		"include two":       {"Include " + dir + "/more/*\nHost *\n  Port 6\n", "a b"},
		"identities":        {"IdentityFile /k/%h-%r-%p\nHost a\n  IdentityFile /k/two\n  IdentityFile /k/two\n  CertificateFile /k/%n.pub\n  IdentitiesOnly yes\nHost *\n  IdentityFile /k/three\n", "a b"},
		"known hosts":       {"UserKnownHostsFile /k/a /k/b\nGlobalKnownHostsFile /dev/null\nHashKnownHosts yes\nHostKeyAlias alias\n", "a"},
		"jumps":             {"Host a\n  ProxyJump x,me@y:22\nHost b\n  ProxyJump none\nHost *\n  ProxyJump z\n", "a b c"},
		"times":             {"Host a\n  ConnectTimeout 1m30s\nHost b\n  ConnectTimeout 0\n", "a b c"},
		"user given twice":  {"User one\nUser two\n", "a x@a"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config")
			sshd.Write(t, file, c.text)
			for _, h := range strings.Fields(c.hosts) {
				compare(t, file, h)
			}
		})
	}
}

func compare(t *testing.T, file, name string) {
	t.Helper()
	target, err := parseTarget(name)
	if err != nil {
		t.Fatal(err)
	}
	argv := []string{"-G", "-F", file}
	if target.port != "" {
		argv = append(argv, "-p", target.port)
	}
	if target.user != "" {
		argv = append(argv, "-l", target.user)
	}
	out, err := exec.Command("ssh", append(argv, target.host)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		want[key] = append(want[key], value)
	}
	d := &Dialer{Config: file}
	e, err := d.evaluate(target)
	if err != nil {
		t.Fatal(err)
	}
	h, err := e.host(name)
	if err != nil {
		t.Fatal(err)
	}
	same := func(key, got string) {
		t.Helper()
		if w := strings.Join(want[key], " "); w != got {
			t.Errorf("%s: %s is %q, OpenSSH has %q", name, key, got, w)
		}
	}
	same("hostname", h.address)
	same("port", h.port)
	same("user", h.user)
	same("proxyjump", strings.TrimPrefix(e.first("proxyjump", ""), "none"))
	if len(e.got["userknownhostsfile"]) > 0 { // the usual ones lie in the account's home for OpenSSH, in $HOME for us
		same("userknownhostsfile", strings.Join(h.known, " "))
	}
	same("globalknownhostsfile", strings.Join(h.knownGlobally, " "))
	same("hashknownhosts", map[bool]string{true: "yes", false: "no"}[h.hash])
	same("identitiesonly", map[bool]string{true: "yes", false: "no"}[h.only])
	if h.timeout > 0 {
		if w := want["connecttimeout"]; len(w) != 1 || w[0] != strings.TrimSuffix(h.timeout.String(), "s") && w[0] != "90" {
			t.Errorf("%s: connecttimeout is %s, OpenSSH has %s", name, h.timeout, w)
		}
	} else if w := strings.Join(want["connecttimeout"], " "); w != "none" && w != "0" {
		t.Errorf("%s: connecttimeout is not set, OpenSSH has %s", name, w)
	}
	if d := e.got["identityfile"]; len(d) > 0 {
		same("identityfile", strings.Join(unexpanded(d), " "))
	}
}

func unexpanded(all []directive) []string {
	var some []string
	for _, d := range all {
		some = append(some, d.args...)
	}
	return some
}

// TestExpanded: what OpenSSH replaces only when it opens the file.
func TestExpanded(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("KEYS", "/keys")
	sshd.Write(t, home+"/.ssh/config", "Host a\n  HostName real\n  IdentityFile ~/%n/%h-%r-%p-%%\n  IdentityFile ${KEYS}/x\n  UserKnownHostsFile %d/known ~/two\n  IdentityAgent $KEYS\n  User me\n")
	h, err := (&Dialer{}).resolve("a:7")
	if err != nil {
		t.Fatal(err)
	}
	if len(h.keys) != 2 || h.keys[0].path != home+"/a/real-me-7-%" || h.keys[1].path != "/keys/x" || !strings.HasSuffix(h.keys[1].at, ".ssh/config:4") {
		t.Errorf("%+v", h.keys)
	}
	if !slices.Equal(h.known, []string{home + "/known", home + "/two"}) || h.agent != "/keys" {
		t.Errorf("%+v", h)
	}
}

// TestNotFollowed: a line that would lead elsewhere is named, if it is in force.
func TestNotFollowed(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for text, words := range map[string]string{
		"Match exec \"test -e x\"\n  Port 1\n":       ":1: Match exec",
		"Match host b exec x\n  Port 1\n":            "",
		"\nMatch host a localnetwork 10.0.0.0/8\n":   ":2: Match localnetwork",
		"Host a\n  ProxyCommand nc %h %p\n":          ":2: ProxyCommand",
		"Host b\n  ProxyCommand nc %h %p\n":          "",
		"ProxyCommand none\nProxyJump x\n":           "",
		"ProxyJump none\nProxyCommand nc\n":          "",
		"ProxyCommand nc\nProxyJump x\n":             ":1: ProxyCommand",
		"CanonicalizeHostname yes\n":                 ":1: CanonicalizeHostname",
		"RevokedHostKeys /etc/ssh/revoked\n":         ":1: RevokedHostKeys",
		"RevokedHostKeys none\n":                     "",
		"Host a\n  Port ssh\n":                       ":2: Port ssh is not a port",
		"Host a\n  User \"me\n":                      ":2: a quote is not closed",
		"Host a\n  ConnectTimeout soon\n":            ":2: ConnectTimeout soon is not a time",
		"Host\n":                                     ":1: host without a value",
		"Match host\n":                               ":1: Match host without a value",
		"GSSAPIAuthentication yes\nForwardX11 yes\n": "",
	} {
		file := filepath.Join(t.TempDir(), "config")
		sshd.Write(t, file, text)
		_, err := (&Dialer{Config: file}).resolve("a")
		if (err == nil) != (words == "") || (err != nil && !strings.Contains(err.Error(), file+words)) {
			t.Errorf("%q: %v", text, err)
		}
	}
	loop := filepath.Join(os.Getenv("HOME"), "loop")
	sshd.Write(t, loop, "Include "+loop+"\n")
	if _, err := (&Dialer{Config: loop}).resolve("a"); err == nil || !strings.Contains(err.Error(), "Includes deep") {
		t.Error(err)
	}
}

func TestTargets(t *testing.T) {
	for s, want := range map[string]target{
		"a": {"", "a", ""}, "me@a": {"me", "a", ""}, "me@a:22": {"me", "a", "22"}, "a:2": {"", "a", "2"}, "[::1]:22": {"", "::1", "22"}, "::1": {"", "::1", ""},
		"[fe80::1%eth0]": {"", "fe80::1%eth0", ""}, "me@corp@a": {"me@corp", "a", ""}, "ssh://me@a:3": {"me", "a", "3"},
	} {
		if got, err := parseTarget(s); err != nil || got != want {
			t.Errorf("%s: %+v %v", s, got, err)
		}
	}
	for _, s := range []string{"", "-a", "me@", "@a", "a:", "a:0", "a:65536", "a b", "a;b", "$(a)", "[::1", "[::1]22", "a/b", "-me@a", "a\nb"} {
		if got, err := parseTarget(s); err == nil {
			t.Errorf("%q: %+v", s, got)
		}
	}
}
