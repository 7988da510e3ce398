package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sgpatch/fixtures/sshd"
	"sgpatch/fixtures/tree"
	"sgpatch/patcher"
	"sgpatch/patcher/patchset"
)

// withGPUs makes the driver say that these are here.
func withGPUs(t *testing.T, models ...string) {
	t.Helper()
	dir := t.TempDir()
	for i, m := range models {
		sshd.Write(t, filepath.Join(dir, string(rune('a'+i)), "information"), "Model: \t\t "+m+"\nIRQ:   \t\t 9\nGPU UUID: \t GPU-x\n")
	}
	was := nvidia
	nvidia = dir
	t.Cleanup(func() { nvidia = was })
}

func TestHardware(t *testing.T) {
	withGPUs(t)
	if got := hardware(); got != "" {
		t.Error(got)
	}
	const six = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
	withGPUs(t, six, six, "NVIDIA H200")
	if got := hardware(); got != "1 x NVIDIA H200, 2 x "+six {
		t.Error(got)
	}
	for has, want := range map[string]bool{"8 RTX PRO 6000 (PCIe Gen5), EAGLE-3": true, "8 RTX PRO 6000": true, "4 RTX PRO 6000": false, "8 RTX 3090": false, "without a size cap, 4 users": false} {
		if got := onSuch("8 x "+six, patchset.Result{Hardware: has}); got != want {
			t.Errorf("%s: %v", has, got)
		}
	}
	if onSuch("", patchset.Result{Hardware: "8 RTX PRO 6000"}) {
		t.Error("nothing is like that")
	}
}

// TestLastBad: of several results the last counts, and only this machine's.
func TestLastBad(t *testing.T) {
	r := &Report{Host: "here", Install: &InstallReport{Root: "/r"}}
	out := func(host, result string, exit int) HistoryEntry {
		return HistoryEntry{Host: host, Command: "revert", Sets: []string{defaultSet}, Result: result, Reason: "slower", Exit: exit, Time: time.Date(2026, 11, 2, 3, 4, 5, 0, time.UTC)}
	}
	pre := func(root, result string) HistoryEntry {
		return HistoryEntry{Host: "here", Command: "preflight", Result: result, Install: &InstallReport{Root: root}}
	}
	for name, c := range map[string]struct {
		entries []HistoryEntry
		has     string
	}{
		"nothing":             {nil, ""},
		"reverted":            {[]HistoryEntry{out("here", "38 tok/s", 0)}, "taken out here on 2026-11-02: slower (38 tok/s)"},
		"elsewhere":           {[]HistoryEntry{out("there", "38 tok/s", 0)}, ""},
		"without a result":    {[]HistoryEntry{out("here", "", 0)}, ""},
		"refused":             {[]HistoryEntry{out("here", "38 tok/s", 3)}, ""},
		"preflight":           {[]HistoryEntry{pre("/r", "not-better: 40 against 30")}, "not-better, 40 against 30"},
		"of another install":  {[]HistoryEntry{pre("/q", "hang: x")}, ""},
		"better since":        {[]HistoryEntry{out("here", "38 tok/s", 0), pre("/r", "better: 1 against 2")}, ""},
		"worse since":         {[]HistoryEntry{pre("/r", "better: 1 against 2"), out("here", "38 tok/s", 0)}, "38 tok/s"},
		"a trial":             {[]HistoryEntry{{Host: "here", Command: "trial", Sets: []string{"x", defaultSet}, Result: "no-difference: 1 and 1"}}, "no-difference, 1 and 1"},
		"a better trial":      {[]HistoryEntry{out("here", "38 tok/s", 0), {Host: "here", Command: "trial", Sets: []string{defaultSet}, Result: "better: 2 and 1"}}, ""},
		"a trial of another":  {[]HistoryEntry{{Host: "here", Command: "trial", Sets: []string{"x"}, Result: "worse: 1 and 1"}}, ""},
		"impossible is no no": {[]HistoryEntry{pre("/r", "impossible: off")}, ""},
	} {
		if got := lastBad(c.entries, r, defaultSet); (got == "") != (c.has == "") || !strings.Contains(got, c.has) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestTriedBefore: apply warns with the numbers, asks where there is somebody to
// ask, and goes on where there is not.
func TestTriedBefore(t *testing.T) {
	withGPUs(t, "NVIDIA RTX PRO 6000", "NVIDIA RTX PRO 6000", "NVIDIA RTX PRO 6000", "NVIDIA RTX PRO 6000", "NVIDIA RTX PRO 6000", "NVIDIA RTX PRO 6000", "NVIDIA RTX PRO 6000", "NVIDIA RTX PRO 6000")
	t.Setenv("SGPATCH_STATE_DIR", t.TempDir())
	root := t.TempDir()
	if err := tree.Write(root); err != nil {
		t.Fatal(err)
	}
	said := ""
	was := asking
	t.Cleanup(func() { asking = was })
	asking = func() io.Reader { return strings.NewReader(said) }
	do := func(exit int, words string, args ...string) {
		t.Helper()
		var o, e strings.Builder
		if code := run(append([]string{"sgpatch"}, append(args, "--root", root)...), &o, &e); code != exit || !strings.Contains(o.String()+e.String(), words) {
			t.Errorf("%v: %d %s%s", args, code, &o, &e)
		}
	}
	said = "n\n"
	do(3, "not applied, as you said; nothing was changed", "apply")
	do(3, "not applied", "apply", "force-custom-ar-pcie", "nccl-pcie")
	do(0, "nothing to change", "revert")
	said = ""
	do(3, "not applied", "apply")
	do(0, "on 8 RTX PRO 6000 (PCIe Gen5), EAGLE-3, 122 all-reduces a verify pass it gave 38.3 tok/s against 82", "apply", "-n")
	do(0, "published-result", "apply", "--json")
	do(0, "nothing to change", "apply") // it is in place: there is nothing to ask
	do(0, "changed", "revert", "--result", "38.3 tok/s", "--reason", "why")
	do(0, "38.3 tok/s against 82", "apply", "--yes")
	do(0, "changed", "revert")
	said = " Yes\n"
	do(0, "it was taken out here on ", "apply")
	do(0, "changed", "revert")
	asking = was // a test has no terminal
	do(0, ": why (38.3 tok/s)", "apply")
	text, err := os.ReadFile(historyFile())
	if err != nil || !strings.Contains(string(text), `"hardware":"8 x NVIDIA RTX PRO 6000"`) {
		t.Errorf("%v: %s", err, text)
	}
}

func TestConfirmInterrupted(t *testing.T) {
	was := asking
	t.Cleanup(func() { asking = was })
	r, w := io.Pipe()
	defer w.Close()
	asking = func() io.Reader { return r }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&options{}).confirm(ctx, []patcher.Finding{{Severity: "warning", Message: "m"}}); !errors.Is(err, errInterrupted) {
		t.Error(err)
	}
}

func TestCards(t *testing.T) {
	e := HistoryEntry{Time: time.Date(2026, 11, 2, 3, 4, 5, 0, time.UTC), Host: "gpu-1", User: "root", Command: "revert", Sets: []string{"a", "b"}, Install: &InstallReport{Root: "/r", Release: "0.5.9"}, Hardware: "8 x X",
		Changed: []string{"/r/a"}, Result: "38 | 82", Reason: "<b>a\nb\x1b[1m, \"c\"", Files: []FileReport{{Path: "sglang/a.py", Have: strings.Repeat("ab", 32), Want: "", Pristine: strings.Repeat("cd", 32)}}}
	got := markdown([]HistoryEntry{e, {Command: "preflight", Result: "better: 1"}})
	for _, line := range []string{
		"| 2026-11-02 03:04 | gpu-1 | revert | a b | 0.5.9 | 8 x X | 38 \\| 82 | &lt;b>a b\\\\x1b\\[1m, \"c\" |\n",
		"- 2026-11-02 03:04 revert 0.5.9 `sglang/a.py`: abababababab, should be -, pristine cdcdcdcdcdcd\n",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("%q is missing in\n%s", line, got)
		}
	}
	for line := range strings.Lines(got) {
		if strings.HasPrefix(line, "|") && strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") != 9 {
			t.Errorf("columns: %s", line)
		}
	}
	rows, err := csv.NewReader(strings.NewReader(commaSeparated([]HistoryEntry{e, e}))).ReadAll()
	if err != nil || len(rows) != 3 || rows[1][11] != e.Reason || rows[0][11] != "reason" || rows[2][8] != "8 x X" {
		t.Errorf("%v %q", err, rows)
	}
	if _, err := json.Marshal(e); err != nil {
		t.Error(err)
	}
}

// TestHostileCards: a cell is text, whatever somebody wrote as a result.
func TestHostileCards(t *testing.T) {
	for text, want := range map[string]string{
		`a\[click](https://x.example)`: `a\\\[click](https://x.example)`,
		`a\|b\<b>\*c*`:                 `a\\\|b\\&lt;b>\\\*c\*`,
	} {
		if got := cell(text); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
	for _, text := range []string{"=HYPERLINK(A1)", "+1", "-1", "@SUM(A1)"} {
		rows, err := csv.NewReader(strings.NewReader(commaSeparated([]HistoryEntry{{Result: text}}))).ReadAll()
		if err != nil || rows[1][10] != "'"+text {
			t.Errorf("%v %q", err, rows)
		}
	}
	digest := markdown([]HistoryEntry{{Files: []FileReport{{Have: "<img src=x>"}}}})
	if strings.Contains(digest, "<img") {
		t.Error(digest)
	}
}
