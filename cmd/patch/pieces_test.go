package main

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReadCommand reads command lines as Python's getopt does.
func TestReadCommand(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"python", "python3.12", "python3.13t", "pythonize", "bash"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, line := range map[string]string{"sglang": "#!" + dir + "/python3.12 -E", "tool": "#!/usr/bin/env -S python -s", "bare": "#!/usr/bin/env -S python -S", "set": "#!/usr/bin/env -S A=1 -i python -E", "near": "#!/usr/bin/env -Spython -s", "sh": "#!/bin/sh"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(line+"\nimport sys\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("python3.12", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	for _, c := range []struct {
		line, python, options, script string
	}{
		{"python -m sglang.launch_server --x", "python", "", ""},
		{"python3.12 -Sc pass", "python3.12", "-S", ""},
		{"python3.13t -B -u serve.py -S", "python3.13t", "-B -u", "serve.py"},
		{"python -Im sglang", "python", "-I", ""},
		{"python -X dev -W error -Es serve.py", "python", "-Xdev -Werror -Es", "serve.py"},
		{"python -Xpycache_prefix=/x -c pass", "python", "-Xpycache_prefix=/x", ""},
		{"python --check-hash-based-pycs never -c pass", "python", "--check-hash-based-pycs never", ""},
		{"python -V", "python", "", ""},
		{"python -BV -c pass", "python", "-B", ""},
		{"python --version", "python", "", ""},
		{"python -", "python", "", ""},
		{"python", "python", "", ""},
		{"pythonize -S", "", "", ""},
		{"bash -c python", "", "", ""},
		{"nothere -S", "", "", ""},
		{"sglang serve -S", "python3.12", "-E", dir + "/sglang"},
		{"tool", "python", "-s", dir + "/tool"},
		{"bare", "python", "-S", dir + "/bare"},
		{"set", "python", "-E", dir + "/set"},
		{"near", "python", "-s", dir + "/near"},
		{"link -S", "link", "-S", ""},
		{"sh -S", "", "", ""},
	} {
		got := readCommand(strings.Fields(c.line))
		python := ""
		if got.python != "" {
			python = filepath.Base(got.python)
		}
		if python != c.python || strings.Join(got.options, " ") != c.options || got.script != c.script {
			t.Errorf("%s: %+v", c.line, got)
		}
	}
}

func TestDropsSite(t *testing.T) {
	for option, want := range map[string]bool{"-S": true, "-SE": true, "-BS": true, "-s": false, "-XS": false, "-WS": false, "--S": false} {
		if dropsSite(option) != want {
			t.Errorf("%s: %v", option, !want)
		}
	}
}

// TestUnifiedIsADiff has GNU patch apply what is shown to people.
func TestUnifiedIsADiff(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		before := text(rng, rng.IntN(40))
		after := slices.Clone(before)
		for range 1 + rng.IntN(4) {
			at := rng.IntN(len(after) + 1)
			after = slices.Insert(after, at, "new\xff\n")
			if at+2 < len(after) {
				after = slices.Delete(after, at+1, at+2)
			}
		}
		old, want := strings.Join(before, ""), strings.Join(after, "")
		path := filepath.Join(dir, "file")
		if err := os.WriteFile(path, []byte(old), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("patch", "-s", path)
		cmd.Stdin = strings.NewReader(unified("file", "file", []byte(old), []byte(want)))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s\n%s", err, out, unified("file", "file", []byte(old), []byte(want)))
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Fatalf("%q becomes %q, want %q", old, got, want)
		}
	}
}

func text(rng *rand.Rand, n int) []string {
	var all []string
	for range n {
		all = append(all, string(rune('a'+rng.IntN(26)))+"\n")
	}
	return all
}

// TestCompletionNamesEveryFlag: the scripts are made from the command table.
func TestCompletionNamesEveryFlag(t *testing.T) {
	for _, script := range []string{bashCompletion(), fishCompletion()} {
		for _, c := range commands() {
			if !strings.Contains(script, c.name) {
				t.Errorf("%s is missing", c.name)
			}
		}
		for _, flag := range []string{"lock-timeout", "listed-only", "purge", "p2p", "release"} {
			if !strings.Contains(script, flag) {
				t.Errorf("--%s is missing", flag)
			}
		}
	}
	if bash, err := exec.LookPath("bash"); err == nil {
		cmd := exec.Command(bash, "-n")
		cmd.Stdin = strings.NewReader(bashCompletion())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}
