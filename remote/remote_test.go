package remote

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"sgpatch/fixtures/sshd"
)

// TestMain is the far side, too: it says who it is and what it was asked.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "_echo" {
		proof, _ := Proof(os.Args[3])
		fmt.Printf("sgpatch-%s hello %s\n", os.Args[2], proof)
		line := make([]byte, 64)
		n, _ := os.Stdin.Read(line)
		if strings.HasPrefix(string(line), `"wait"`) {
			time.Sleep(30 * time.Second)
		}
		fmt.Printf("%s of %s in %s", strings.TrimSpace(string(line[:n])), os.Args[0], os.Getenv("HOME"))
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func dialer() *Dialer {
	return &Dialer{Timeout: 30 * time.Second, Verb: "_echo", Record: func(path string, line []byte) error {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.Write(append(line, '\n'))
			f.Close()
		}
		return err
	}}
}

// reaches runs the program on a host, or says why not.
func reaches(d *Dialer, name string) error {
	a, err := d.Run(context.Background(), name, []byte(`"x"`))
	if err == nil && (a.Exit != 3 || !strings.HasPrefix(string(a.Output), `"x" of /`)) {
		err = fmt.Errorf("exit %d: %s", a.Exit, a.Output)
	}
	return err
}

func must(t *testing.T, d *Dialer, name string) {
	t.Helper()
	if err := reaches(d, name); err != nil {
		t.Errorf("%v", err)
	}
}

// mustNot demands an error with these words in it or in its way out.
func mustNot(t *testing.T, d *Dialer, name string, words ...string) {
	t.Helper()
	err := reaches(d, name)
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("%s: %v", name, err)
		return
	}
	text := e.Error() + "\nnext: " + e.Hint
	if !strings.HasPrefix(text, name+": ") {
		t.Errorf("the host is not named first: %s", text)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing: %s", w, text)
		}
	}
}

func TestHostKeys(t *testing.T) {
	s := sshd.New(t)
	other := filepath.Join(t.TempDir(), "other")
	sshd.NewKey(t, "ed25519", other, "")
	here := "[127.0.0.1]:" + s.Port + " "
	for _, k := range sshd.Kinds {
		t.Run(k, func(t *testing.T) {
			home := s.Home(t, s.Known(t, k))
			must(t, dialer(), s.Name())
			if got := sshd.Read(t, home+"/.ssh/known_hosts"); got != s.Known(t, k) {
				t.Errorf("known_hosts was changed: %s", got)
			}
		})
	}
	t.Run("hashed", func(t *testing.T) {
		home := s.Home(t, s.Known(t, "rsa"))
		sshd.Tool(t, "ssh-keygen", "-q", "-H", "-f", home+"/.ssh/known_hosts")
		must(t, dialer(), s.Name())
	})
	t.Run("without a port", func(t *testing.T) {
		s.Home(t, "127.0.0.1 "+sshd.Public(t, s.HostKey("ecdsa"))+"\n")
		must(t, dialer(), s.Name())
	})
	t.Run("one of several", func(t *testing.T) {
		s.Home(t, here+sshd.Public(t, other)+"\n"+s.Known(t, "ed25519"))
		must(t, dialer(), s.Name())
	})
	t.Run("changed", func(t *testing.T) {
		home := s.Home(t, here+sshd.Public(t, other)+"\n")
		for _, accept := range []bool{false, true} {
			d := dialer()
			d.AcceptNew = accept
			mustNot(t, d, s.Name(), "is not the one that is known", home+"/.ssh/known_hosts:1", "SHA256:", "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub", "ssh-keygen -R '[127.0.0.1]:"+s.Port+"'")
		}
	})
	t.Run("unknown", func(t *testing.T) {
		home := s.Home(t, "")
		mustNot(t, dialer(), s.Name(), "is not known", "ssh-ed25519 SHA256:", "ssh-keygen -lf", "--accept-new")
		if _, err := os.Stat(home + "/.ssh/known_hosts"); err == nil {
			t.Error("known_hosts was written")
		}
	})
	t.Run("accepted", func(t *testing.T) {
		home := s.Home(t, "")
		sshd.Write(t, home+"/.ssh/config", "HashKnownHosts yes\n")
		d := dialer()
		d.AcceptNew = true
		must(t, d, s.Name())
		must(t, d, s.Name())
		must(t, dialer(), s.Name())
		if lines := strings.Count(sshd.Read(t, home+"/.ssh/known_hosts"), "|1|"); lines != 1 {
			t.Errorf("%d lines were recorded", lines)
		}
		sshd.Tool(t, "ssh-keygen", "-F", "[127.0.0.1]:"+s.Port, "-f", home+"/.ssh/known_hosts")
	})
	t.Run("accepted, and another one later", func(t *testing.T) {
		home := s.Home(t, "other.example "+sshd.Public(t, other)+"\n")
		sshd.Write(t, home+"/.ssh/config", "Host again\n  HostName 127.0.0.1\n  HostKeyAlgorithms ecdsa-sha2-nistp256\nHost *\n  User "+s.User+"\n  Port "+s.Port+"\n")
		d := dialer()
		d.AcceptNew = true
		must(t, d, "127.0.0.1")
		mustNot(t, d, "again", "is not the one that was recorded a moment ago", "SHA256:", "ssh-keygen -lf "+home+"/.ssh/known_hosts")
		if lines := strings.Count(sshd.Read(t, home+"/.ssh/known_hosts"), "\n"); lines != 2 {
			t.Errorf("%d lines are there", lines)
		}
	})
	t.Run("revoked", func(t *testing.T) {
		home := s.Home(t, s.Known(t, "ed25519")+"@revoked * "+sshd.Public(t, s.HostKey("ed25519"))+"\n")
		mustNot(t, dialer(), s.Name(), "revoked", home+"/.ssh/known_hosts:2")
	})
	t.Run("a torn line", func(t *testing.T) {
		s.Home(t, "[127.0.0.1]:22 ssh-ed25519 AAAA\n"+s.Known(t, "ed25519")+"old 1024 35 1234\n")
		must(t, dialer(), s.Name())
	})
}

// TestInBetween: somebody with another key hears nothing of ours but our version
// and the handshake: no name of a user, no key, no request.
func TestInBetween(t *testing.T) {
	s := sshd.New(t)
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	var tried atomic.Int32
	try := func(ssh.ConnMetadata) { tried.Add(1) }
	server := &ssh.ServerConfig{
		NoClientAuth:         true,
		NoClientAuthCallback: func(c ssh.ConnMetadata) (*ssh.Permissions, error) { try(c); return nil, nil },
		PublicKeyCallback:    func(c ssh.ConnMetadata, _ ssh.PublicKey) (*ssh.Permissions, error) { try(c); return nil, nil },
		AuthLogCallback:      func(c ssh.ConnMetadata, _ string, _ error) { try(c) },
	}
	server.AddHostKey(key)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended := make(chan error)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _, _, err = ssh.NewServerConn(conn, server)
			conn.Close()
			ended <- err
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	name := s.User + "@127.0.0.1:" + port
	for known, words := range map[string]string{
		"[127.0.0.1]:" + port + " " + sshd.Public(t, s.HostKey("ed25519")): "is not the one that is known",
		"[127.0.0.1]:" + port + " " + sshd.Public(t, s.HostKey("rsa")):     "is not the one that is known",
		"@cert-authority * " + sshd.Public(t, s.HostKey("ed25519")):        "is not known",
		"": "is not known",
		"@revoked * " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey()))): "is revoked",
	} {
		s.Home(t, known+"\n")
		mustNot(t, dialer(), name, words)
		if err := <-ended; err == nil {
			t.Errorf("%s: the handshake was finished", known)
		}
	}
	if n := tried.Load(); n > 0 {
		t.Errorf("%d attempts to log in", n)
	}
	s.Home(t, "[127.0.0.1]:"+port+" "+string(ssh.MarshalAuthorizedKey(key.PublicKey())))
	go dialer().Run(t.Context(), name, nil)
	if err := <-ended; err != nil || tried.Load() == 0 {
		t.Errorf("with the right key: %v, %d attempts", err, tried.Load()) // the test can see them
	}
}

func TestHostCertificate(t *testing.T) {
	s := sshd.New(t, "HostCertificate DIR/host_ecdsa-cert.pub")
	ca := filepath.Join(t.TempDir(), "ca")
	sshd.NewKey(t, "ed25519", ca, "")
	sign := func(principal, validity string) {
		s.Stop()
		sshd.Tool(t, "ssh-keygen", "-q", "-s", ca, "-h", "-I", "host", "-n", principal, "-V", validity, s.HostKey("ecdsa")+".pub")
		s.Start(t)
	}
	sign("127.0.0.1", "-1h:+1h")
	authority := "@cert-authority * " + sshd.Public(t, ca) + "\n"
	s.Home(t, authority)
	must(t, dialer(), s.Name())
	s.Home(t, authority+"@revoked * "+sshd.Public(t, ca)+"\n")
	mustNot(t, dialer(), s.Name(), "revoked")
	s.Home(t, s.Known(t, "rsa"))
	must(t, dialer(), s.Name())
	s.Home(t, authority)
	sign("elsewhere", "-1h:+1h")
	mustNot(t, dialer(), s.Name(), "certificate", "principal")
	sign("127.0.0.1", "-2h:-1h")
	mustNot(t, dialer(), s.Name(), "certificate", "expired")
}

func TestCredentials(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca")
	sshd.NewKey(t, "ed25519", ca, "")
	s := sshd.New(t, "TrustedUserCAKeys "+ca+".pub")
	client := s.Dir + "/client"
	known := s.Known(t, "ed25519")
	t.Run("none", func(t *testing.T) {
		home := s.Home(t, known)
		os.Remove(home + "/.ssh/id_ed25519")
		mustNot(t, dialer(), s.Name(), "none to offer", "ssh -v")
	})
	t.Run("readable by others", func(t *testing.T) {
		home := s.Home(t, known)
		os.Chmod(home+"/.ssh/id_ed25519", 0o644)
		mustNot(t, dialer(), s.Name(), "chmod 600")
	})
	t.Run("named in the configuration and not there", func(t *testing.T) {
		home := s.Home(t, known)
		sshd.Write(t, home+"/.ssh/config", "Host *\n  GSSAPIAuthentication yes\n  IdentityFile ~/nothing\n")
		mustNot(t, dialer(), s.Name(), home+"/nothing does not exist", home+"/.ssh/config:3", home+"/.ssh/config:2: GSSAPIAuthentication is not followed")
	})
	t.Run("agent", func(t *testing.T) {
		home := s.Home(t, known)
		os.Remove(home + "/.ssh/id_ed25519")
		sock := filepath.Join(t.TempDir(), "agent")
		agent := exec.Command("ssh-agent", "-D", "-a", sock)
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { agent.Process.Kill(); agent.Wait() }()
		for range 200 {
			if _, err := os.Stat(sock); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Setenv("SSH_AUTH_SOCK", sock)
		mustNot(t, dialer(), s.Name(), "none to offer")
		sshd.Tool(t, "ssh-add", "-q", client)
		must(t, dialer(), s.Name())
		sshd.Write(t, home+"/.ssh/config", "IdentitiesOnly yes\n")
		mustNot(t, dialer(), s.Name(), "no key")
		t.Setenv("SSH_AUTH_SOCK", "")
		sshd.Write(t, home+"/.ssh/config", "IdentityAgent "+sock+"\n")
		must(t, dialer(), s.Name())
		// what the agent has, nobody is asked for: by its public half, or locked
		sshd.Write(t, home+"/.ssh/config", "IdentityAgent "+sock+"\nIdentitiesOnly yes\nIdentityFile "+client+".pub\n")
		must(t, dialer(), s.Name())
		sshd.Write(t, home+"/.ssh/id_ed25519", sshd.Read(t, client))
		sshd.Tool(t, "ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", home+"/.ssh/id_ed25519")
		sshd.Write(t, home+"/.ssh/config", "IdentityAgent "+sock+"\nIdentitiesOnly yes\n")
		must(t, dialer(), s.Name())
	})
	t.Run("certificate", func(t *testing.T) {
		home := s.Home(t, known)
		key := home + "/.ssh/id_rsa"
		os.Remove(home + "/.ssh/id_ed25519")
		sshd.NewKey(t, "rsa", key, "")
		mustNot(t, dialer(), s.Name(), "no key", "ssh-rsa SHA256:")
		sshd.Tool(t, "ssh-keygen", "-q", "-s", ca, "-I", "user", "-n", s.User, key+".pub")
		must(t, dialer(), s.Name())
		os.Rename(key+"-cert.pub", home+"/my-cert")
		sshd.Write(t, home+"/.ssh/config", "CertificateFile %d/my-cert\n")
		must(t, dialer(), s.Name())
	})
	t.Run("passphrase", func(t *testing.T) {
		for _, kind := range []string{"ed25519", "rsa"} {
			home := s.Home(t, known)
			os.Remove(home + "/.ssh/id_ed25519")
			sshd.NewKey(t, kind, home+"/.ssh/id_"+kind, "open sesame")
			s.Authorize(t, sshd.Public(t, home+"/.ssh/id_"+kind), sshd.Public(t, client))
			mustNot(t, dialer(), s.Name(), "has a passphrase", "ssh-add")
			d, asked := dialer(), 0
			d.Timeout = 3 * time.Second
			d.Ask = func(prompt string) ([]byte, error) {
				if asked++; asked == 1 {
					time.Sleep(4 * time.Second) // a person; the clock stands
					return []byte("wrong"), nil
				}
				return []byte("open sesame"), nil
			}
			must(t, d, s.Name())
			must(t, d, s.Name())
			if asked != 2 {
				t.Errorf("asked %d times", asked)
			}
		}
	})
}

func TestConfiguredWay(t *testing.T) {
	s := sshd.New(t)
	home := s.Home(t, s.Known(t, "ed25519"))
	os.Rename(home+"/.ssh/id_ed25519", home+"/key")
	sshd.Write(t, home+"/.ssh/config", "Include conf.d/*\nMatch host 127.0.0.1 user "+s.User+"\n  IdentityFile ~/key\n")
	sshd.Write(t, home+"/.ssh/conf.d/a", fmt.Sprintf("Host gpu-*\n  HostName 127.0.0.1\n  Port %s\n  User %s\nHost gpu-2\n  ProxyJump gpu-1\nHost gpu-3\n  ProxyJump gpu-1,gpu-2\nHost round-1\n  ProxyJump round-2\nHost round-2\n  ProxyJump round-1\nHost old\n  ProxyCommand nc %%h\nHost far\n  ProxyJump gpu-1\n  HostName 127.0.0.1\n  Port 9\n", s.Port, s.User))
	must(t, dialer(), "gpu-1")
	must(t, dialer(), "gpu-2")
	must(t, dialer(), "gpu-3")
	mustNot(t, dialer(), "round-1", "circle", home+"/.ssh/conf.d/a:")
	mustNot(t, dialer(), "old", home+"/.ssh/conf.d/a:14: ProxyCommand cannot be followed", "--ssh-command ssh")
	mustNot(t, dialer(), "far", "127.0.0.1:9", home+"/.ssh/conf.d/a:17")
	d := dialer()
	d.Config = home + "/none"
	mustNot(t, d, "gpu-1", home+"/none")
	os.Chmod(home+"/.ssh/config", 0o666)
	mustNot(t, dialer(), "gpu-1", "others could have written it")
}

func TestDeadAndMute(t *testing.T) {
	s := sshd.New(t)
	home := s.Home(t, s.Known(t, "ed25519"))
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	_, port, _ := net.SplitHostPort(mute.Addr().String())
	sshd.Write(t, home+"/.ssh/config", fmt.Sprintf("Host behind\n  HostName 127.0.0.1\n  Port %s\n  ProxyJump %s\nHost slow\n  ConnectTimeout 1\n  HostName 127.0.0.1\n  Port %[1]s\n", port, s.Name()))
	start := time.Now()
	d := dialer()
	d.Timeout = 2 * time.Second
	mustNot(t, d, "127.0.0.1:"+port, "within 2s", "--connect-timeout")
	mustNot(t, d, "behind", "within 2s")
	d.Timeout = 0
	mustNot(t, d, "slow", "within 1s")
	mustNot(t, d, "127.0.0.1:"+sshd.FreePort(t), "refused")
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("that took %s", took)
	}
}

// TestSharedJump: who comes over the same host shares its connection; one that
// breaks is made anew, and one that freezes holds nobody longer than the time.
func TestSharedJump(t *testing.T) {
	gate, s := sshd.New(t), sshd.New(t)
	home := s.Home(t, s.Known(t, "ed25519")+gate.Known(t, "ed25519"))
	gate.Authorize(t, sshd.Public(t, s.Dir+"/client"))
	sshd.Write(t, home+"/.ssh/config", fmt.Sprintf("Host gate\n  Port %s\nHost gpu-*\n  Port %s\n  ProxyJump gate\nHost *\n  HostName 127.0.0.1\n  User %s\n", gate.Port, s.Port, s.User))
	d := dialer()
	defer d.Close()
	must(t, d, "gpu-0")
	many := func() {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { must(t, d, fmt.Sprintf("gpu-%d", i)) })
		}
		all.Wait()
	}
	logins := func() int { return strings.Count(sshd.Read(t, gate.Dir+"/log"), "Accepted publickey") }
	many()
	if n := logins(); n != 1 {
		t.Errorf("%d logins at the jump", n)
	}
	gate.Stop()
	gate.Start(t)
	many()
	if n := logins(); n != 2 {
		t.Errorf("%d logins at the jump after it had gone once", n)
	}
	gate.Freeze()
	d.Timeout = 2 * time.Second
	start := time.Now()
	mustNot(t, d, "gpu-1", "within 2s")
	d = dialer()
	d.Timeout = 2 * time.Second
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() { mustNot(t, d, fmt.Sprintf("gpu-%d", i), "jump gate: no connection within 2s") })
	}
	all.Wait()
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("that took %s", took)
	}
}

// TestJumpOfOtherProof: a jump that one host's way has proved is not taken on
// the way of another, which asks for another proof of the same machine.
func TestJumpOfOtherProof(t *testing.T) {
	gate, s := sshd.New(t), sshd.New(t)
	home := s.Home(t, s.Known(t, "ed25519")+gate.Known(t, "ed25519"))
	gate.Authorize(t, sshd.Public(t, s.Dir+"/client"))
	sshd.Write(t, home+"/strict", "")
	sshd.Write(t, home+"/.ssh/config", fmt.Sprintf("Host gate strict\n  Port %s\nHost strict\n  UserKnownHostsFile %s/strict\nHost gpu-0\n  ProxyJump gate\nHost gpu-1\n  ProxyJump strict\nHost gpu-*\n  Port %s\nHost *\n  HostName 127.0.0.1\n  User %s\n", gate.Port, home, s.Port, s.User))
	d := dialer()
	defer d.Close()
	must(t, d, "gpu-0")
	mustNot(t, d, "gpu-1", "jump strict", "is not known")
}

// TestJumpOfLessTime: a host that has more time than the one that makes the jump
// does not fail with it.
func TestJumpOfLessTime(t *testing.T) {
	gate, s := sshd.New(t), sshd.New(t)
	home := s.Home(t, s.Known(t, "ed25519")+gate.Known(t, "ed25519"))
	gate.Authorize(t, sshd.Public(t, s.Dir+"/client"))
	sshd.Write(t, home+"/.ssh/config", fmt.Sprintf("Host gate\n  Port %s\nHost gpu-0\n  ConnectTimeout 2\nHost gpu-*\n  ConnectTimeout 60\n  Port %s\n  ProxyJump gate\nHost *\n  HostName 127.0.0.1\n  User %s\n", gate.Port, s.Port, s.User))
	gate.Freeze()
	d := dialer()
	d.Timeout = 0
	defer d.Close()
	var first, second sync.WaitGroup
	first.Go(func() { mustNot(t, d, "gpu-0", "jump gate: no connection within 2s") })
	time.Sleep(200 * time.Millisecond)
	second.Go(func() { must(t, d, "gpu-1") })
	first.Wait()
	gate.Stop()
	gate.Start(t)
	second.Wait()
}

// TestPolicy: what may be agreed on with a host is what the configuration says.
func TestPolicy(t *testing.T) {
	s := sshd.New(t, "Ciphers aes256-ctr,aes256-gcm@openssh.com", "MACs hmac-sha2-256", "KexAlgorithms ecdh-sha2-nistp256,curve25519-sha256")
	home := s.Home(t, s.Known(t, "ed25519"))
	for line, words := range map[string]string{
		"Ciphers aes256-ctr":                "",
		"Ciphers none-such,aes256-ctr":      "",
		"Ciphers -*gcm*":                    "",
		"Ciphers aes128-ctr":                "no common algorithm",
		"Ciphers -aes256*":                  "no common algorithm",
		"Ciphers none-such":                 ":1: Ciphers none-such cannot be followed",
		"Ciphers -*":                        ":1: Ciphers -* cannot be followed",
		"Ciphers \"\"":                      ":1: Ciphers  cannot be followed",
		"MACs hmac-sha2-256":                "",
		"KexAlgorithms ecdh-sha2-nistp256":  "",
		"KexAlgorithms +ecdh-sha2-nistp256": "",
		"KexAlgorithms ^curve25519-sha256":  "",
		"KexAlgorithms ecdh-sha2-nistp521":  "no common algorithm",
		"AddressFamily inet":                "",
		"AddressFamily inet6":               "127.0.0.1",
		"AddressFamily ipx":                 ":1: AddressFamily ipx",
		"BindAddress 127.0.0.1":             "",
		"BindAddress 192.0.2.1":             "assign requested address",
		"BindAddress here":                  ":1: BindAddress here is not an address",
		"BindInterface lo":                  ":1: BindInterface cannot be followed",
	} {
		sshd.Write(t, home+"/.ssh/config", line+"\n")
		if words == "" {
			must(t, dialer(), s.Name())
		} else {
			mustNot(t, dialer(), s.Name(), words)
		}
	}
}

// TestFreezes: a host that goes away while it works holds nobody for ever.
func TestFreezes(t *testing.T) {
	s := sshd.New(t)
	s.Home(t, s.Known(t, "ed25519"))
	must(t, dialer(), s.Name())
	start, d := time.Now(), dialer()
	d.every = time.Second
	said := make(chan error)
	go func() {
		_, err := d.Run(context.Background(), s.Name(), []byte(`"wait"`))
		said <- err
	}()
	time.Sleep(3 * time.Second)
	s.Freeze()
	err := <-said
	if took := time.Since(start); err == nil || took > 20*time.Second || !strings.Contains(err.Error(), "lost") {
		t.Errorf("%v after %s", err, took)
	}
}

// TestMany: a server that drops who comes while it is busy loses nobody.
func TestMany(t *testing.T) {
	s := sshd.New(t, "MaxStartups 2:60:4")
	s.Home(t, s.Known(t, "ed25519"))
	d := dialer()
	d.Timeout = 120 * time.Second
	must(t, d, s.Name()) // brings the program
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() { must(t, d, s.Name()) })
	}
	all.Wait()
	if !strings.Contains(sshd.Read(t, s.Dir+"/log"), "MaxStartups") {
		t.Log("nobody was dropped")
	}
}

// TestCarry: the program is uploaded once, and only what is complete is run.
// TestCarryPlain: a host without gzip gets the program as it is, and one without
// space keeps no part of it.
// TestOtherMachine: another kind of machine gets the binary that lies beside ours.
// TestShells: what stands on the command line is one word for any shell, and
// what start-up files print is passed over.
// TestInterrupted: the far side hears of it by the end of its input.
