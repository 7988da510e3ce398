package remote

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sgpatch/fixtures/sshd"
)

func TestCarry(t *testing.T) {
	s := sshd.New(t)
	s.Home(t, s.Known(t, "ed25519"))
	p, err := own()
	if err != nil {
		t.Fatal(err)
	}
	folder := s.Far() + "/cache/sgpatch/" + p.digest
	file := folder + "/sgpatch"
	must(t, dialer(), s.Name())
	first, err := os.Stat(file)
	if err != nil || first.Mode() != 0o700 {
		t.Fatalf("%v %v", err, first)
	}
	must(t, dialer(), s.Name())
	if again, err := os.Stat(file); err != nil || !os.SameFile(first, again) {
		t.Error("it was uploaded a second time")
	}
	if left, _ := filepath.Glob(folder + "/.*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	t.Run("old", func(t *testing.T) {
		for name, days := range map[string]int{"older": 40, "newer": 20} {
			sshd.Write(t, s.Far()+"/cache/sgpatch/"+name+"/sgpatch", "of another version")
			then := time.Now().AddDate(0, 0, -days)
			if err := os.Chtimes(s.Far()+"/cache/sgpatch/"+name, then, then); err != nil {
				t.Fatal(err)
			}
		}
		os.Remove(file)
		must(t, dialer(), s.Name())
		all, _ := filepath.Glob(s.Far() + "/cache/sgpatch/*")
		if want := []string{folder, s.Far() + "/cache/sgpatch/newer"}; !slices.Equal(all, want) {
			t.Errorf("%s, want %s", all, want)
		}
	})
	t.Run("half", func(t *testing.T) {
		text, _ := os.ReadFile(file)
		sshd.Write(t, folder+"/.part-x", string(text[:len(text)/2]))
		os.Remove(file)
		must(t, dialer(), s.Name())
	})
	t.Run("cut", func(t *testing.T) {
		os.RemoveAll(folder)
		ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
		dialer().Run(ctx, s.Name(), nil)
		cancel()
		must(t, dialer(), s.Name())
	})
	t.Run("changed", func(t *testing.T) {
		whole := must2(os.ReadFile(file))
		damaged := bytes.Clone(whole)
		damaged[len(damaged)-9]++
		for _, text := range [][]byte{append(bytes.Clone(whole), "more"...), damaged} {
			os.WriteFile(file, text, 0o700)
			must(t, dialer(), s.Name())
			if now := must2(os.ReadFile(file)); !bytes.Equal(now, whole) {
				t.Error("it was not brought again")
			}
		}
	})
	for name, spoil := range map[string]func(){
		"is not a private folder": func() { os.Chmod(folder, 0o755) },
		"is not a private file":   func() { os.Chmod(folder, 0o700); os.Chmod(file, 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			os.Chmod(folder, 0o700)
			os.Chmod(file, 0o700)
			spoil()
			mustNot(t, dialer(), s.Name(), name)
		})
	}
	t.Run("a link", func(t *testing.T) {
		os.Chmod(folder, 0o700)
		os.Chmod(file, 0o700)
		os.Rename(folder, s.Far()+"/elsewhere")
		os.Symlink(s.Far()+"/elsewhere", folder)
		mustNot(t, dialer(), s.Name(), "is not a private folder")
	})
}

func TestCarryPlain(t *testing.T) {
	s := sshd.New(t, `ForceCommand PATH=DIR/bin; export PATH; . DIR/limit; eval "$SSH_ORIGINAL_COMMAND"`)
	s.Home(t, s.Known(t, "ed25519"))
	os.Mkdir(s.Dir+"/bin", 0o755)
	for _, name := range []string{"id", "uname", "ls", "mkdir", "cat", "chmod", "sha256sum", "wc", "mv", "rm", "find", "gzip"} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, s.Dir+"/bin/"+name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	limit := func(text string) { sshd.Write(t, s.Dir+"/limit", text) }
	for range 2 { // with gzip, and without
		limit("ulimit -f 1000") // a disk that is full
		mustNot(t, dialer(), s.Name(), "cannot be written")
		if parts, _ := filepath.Glob(s.Far() + "/cache/sgpatch/*/.*"); len(parts) > 0 {
			t.Errorf("left behind: %s", parts)
		}
		limit("")
		must(t, dialer(), s.Name())
		os.RemoveAll(s.Far() + "/cache")
		os.Remove(s.Dir + "/bin/gzip")
	}
}

func must2(b []byte, err error) []byte { return b }

func TestOtherMachine(t *testing.T) {
	s := sshd.New(t, `ForceCommand PATH=DIR/bin:$PATH; export PATH; eval "$SSH_ORIGINAL_COMMAND"`)
	s.Home(t, s.Known(t, "ed25519"))
	other, kind := "arm64", "aarch64"
	if runtime.GOARCH == "arm64" {
		other, kind = "amd64", "x86_64"
	}
	sshd.Write(t, s.Dir+"/bin/uname", "#!/bin/sh\n[ $1 = -sm ] && echo Linux "+kind+"\n")
	os.Chmod(s.Dir+"/bin/uname", 0o700)
	mustNot(t, dialer(), s.Name(), "it is Linux/"+kind, "sgpatch-linux-"+other)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(filepath.Dir(exe), "sgpatch-linux-"+other)
	sshd.Write(t, beside, sshd.Read(t, exe)+"more")
	defer os.Remove(beside)
	must(t, dialer(), s.Name())
}

func TestShells(t *testing.T) {
	for _, script := range []string{startScript, uploadScript} {
		if i := strings.IndexAny(script, "'\\\n!"); i >= 0 {
			t.Errorf("%q has %q, which some shells read otherwise", script[max(0, i-10):i+1], script[i])
		}
	}
	for _, shell := range []string{"sh", "bash", "dash", "zsh", "ksh", "mksh", "tcsh", "fish", "busybox"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		argv := []string{"-c", shellLine(startScript, "n", "d", strings.Join(machines(runtime.GOOS, runtime.GOARCH), " "), "no", "x", "y")}
		if shell == "busybox" {
			argv = append([]string{"sh"}, argv...)
		}
		cmd := exec.Command(path, argv...)
		cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "sgpatch-n missing gzip\n" {
			t.Errorf("%s: %v: %s", shell, err, out)
		}
	}
	s := sshd.New(t, `ForceCommand echo "sgpatch-x hello there"; yes | head -n 1000; eval "$SSH_ORIGINAL_COMMAND"`)
	s.Home(t, s.Known(t, "ed25519"))
	must(t, dialer(), s.Name())
	broken := sshd.New(t, `ForceCommand echo no such luck >&2; exit 7`)
	broken.Home(t, broken.Known(t, "ed25519"))
	mustNot(t, dialer(), broken.Name(), "no such luck")
}

func TestInterrupted(t *testing.T) {
	c := &conversation{process: &process{stderr: &tail{}, kill: func() { t.Error("killed") }, wait: func() (int, error) { return 130, nil }}}
	in, stdin := io.Pipe()
	out, stdout := io.Pipe()
	c.stdin, c.out = stdin, newReader(out)
	var heard atomic.Bool
	go func() {
		io.ReadAll(in)
		heard.Store(true)
		io.WriteString(stdout, "put back")
		stdout.Close()
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	a, err := c.converse(ctx, []byte("x"))
	if err != nil || !heard.Load() || string(a.Output) != "put back" || a.Exit != 130 {
		t.Errorf("%+v %v", a, err)
	}
}
