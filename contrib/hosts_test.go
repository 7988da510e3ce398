package contrib

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sgpatch/fixtures/tools"
)

// host is a machine with the second layout, the program in /usr/local/bin, and the
// patch in place. The last layer has the change of after.
func host(t *testing.T, after func(root string)) *image {
	t.Helper()
	im := newImage(t)
	im.change(t, func(root string) {
		layouts[1].make(t, root)
		must(t, copyTo(binary(), root+"/usr/local/bin/sgpatch"))
		process{root: root}.exits(t, 0, "sgpatch", "apply", "--python", layouts[1].python)
	})
	im.change(t, after)
	return im
}

// unit reads the settings of a unit file, in order.
func unit(t *testing.T, path string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	all := map[string][]string{}
	for _, line := range strings.Split(string(text), "\n") {
		if name, value, ok := strings.Cut(line, "="); ok && line[0] != '#' {
			all[name] = append(all[name], value)
		}
	}
	return all
}

// TestSystemd runs what the drop-in adds as the sample's settings say: as its user,
// where it stands, with its environment, on a read-only root.
func TestSystemd(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	dropIn, service := unit(t, "systemd/sgpatch.conf"), unit(t, "systemd/sglang.service")
	check, start := strings.Fields(dropIn["ExecStartPre"][0]), strings.Fields(service["ExecStart"][0])
	if !slices.Contains(check, start[0]) || service["ProtectSystem"][0] != "strict" {
		t.Errorf("what is judged is not what is started: %q, %q", check, start)
	}
	im := host(t, func(string) {})
	im.mounted(t, im.layers, "", func(root string) {
		p := process{root: root, dir: service["WorkingDirectory"][0], env: service["Environment"], uid: 998, gid: 998}
		p.exits(t, 0, check...)
		p.serves(t, start, start[3:]...)
		p.env = append(p.env, gate+"=0")
		p.exits(t, 1, check...)
	})
	im.change(t, func(root string) { process{root: root}.exits(t, 0, "sgpatch", "revert", "--python", start[0]) })
	im.mounted(t, im.layers, "", func(root string) {
		process{root: root, env: service["Environment"], uid: 998, gid: 998}.exits(t, 1, check...)
	})
}

// obeyed is what slurmstepd makes of the output of a TaskProlog.
func obeyed(out string) (printed, ordered []string) {
	for _, line := range strings.Split(out, "\n") {
		if text, ok := strings.CutPrefix(line, "print "); ok {
			printed = append(printed, text)
		} else if strings.HasPrefix(line, "export ") || strings.HasPrefix(line, "unset ") {
			ordered = append(ordered, line)
		} else if line != "" {
			ordered = append(ordered, "lost: "+line)
		}
	}
	return printed, ordered
}

// TestTaskProlog runs the script as slurmstepd does: as the user, by its path, both
// outputs in one pipe.
func TestTaskProlog(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	im := host(t, func(root string) { must(t, copyTo("slurm/taskprolog.sh", root+"/etc/taskprolog.sh")) })
	python := "SGPATCH_PYTHON=" + layouts[1].python
	for _, c := range []struct {
		name string
		env  []string
		code int
		says string
	}{
		{"the job does not ask", nil, 0, ""},
		{"it holds", []string{python}, 0, ""},
		{"the job switches it off", []string{python, gate + "=off"}, 1, gate},
		{"no such interpreter", []string{"SGPATCH_PYTHON=/nowhere/python3"}, 3, "/nowhere/python3"},
		{"an order in a name", []string{"SGPATCH_PYTHON=/nowhere\nexport LD_PRELOAD=/tmp/mine.so\nunset PATH"}, 3, "/nowhere"},
	} {
		t.Run(c.name, func(t *testing.T) {
			im.mounted(t, im.layers, "", func(root string) {
				p := process{root: root, uid: 1000, gid: 1000, env: append([]string{"SLURM_JOB_ID=1"}, c.env...)}
				printed, ordered := obeyed(p.exits(t, c.code, "/etc/taskprolog.sh"))
				if len(ordered) > 0 {
					t.Errorf("slurmstepd would obey %q", ordered)
				}
				if said := strings.Join(printed, "\n"); (c.says == "") != (said == "") || !strings.Contains(said, c.says) {
					t.Errorf("the task prints %q", said)
				}
			})
		})
	}
}

// fences are the command lines in the shell fences of a page.
func fences(t *testing.T, path string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	for i, part := range strings.Split(string(text), "```") {
		if lines, ok := strings.CutPrefix(part, "sh\n"); ok && i%2 == 1 {
			all = append(all, strings.Split(strings.TrimSpace(lines), "\n")...)
		}
	}
	return all
}

// standIns take the place of what starts a command elsewhere. clush and pdsh give
// their words, joined by blanks, to a shell on each host; srun starts them as they are.
var standIns = map[string]string{
	"srun": `exec "$@"`,
	"clush": `while :; do case $1 in -S|-b) shift;; -w) shift 2;; -c) test -x "$2"; exit;; *) break;; esac; done
sh -c "$*" && sh -c "$*"`,
	"pdsh": `while :; do case $1 in -S) shift;; -w) shift 2;; *) break;; esac; done
sh -c "$*" && sh -c "$*"`,
}

// TestOneLiners runs every line of the pages where the patch is not, with
// stand-ins for the tools that reach other hosts: "gpu[1-8]" is twice this one.
func TestOneLiners(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	im := host(t, func(root string) {
		for name, text := range standIns {
			must(t, os.WriteFile(filepath.Join(root, "usr/local/bin", name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
		}
		p := process{root: root}
		p.exits(t, 0, "sgpatch", "revert", "--python", layouts[1].python)
		must(t, os.WriteFile(root+"/usr/local/bin/python3", []byte("#!/bin/sh\nexec "+layouts[1].python+" \"$@\"\n"), 0o755))
	})
	lines := slices.Concat(fences(t, "README.md"), fences(t, "slurm/README.md"))
	var ran []string
	im.mounted(t, im.layers, im.copied(t).next(t), func(root string) {
		p := process{root: root, env: []string{"VIRTUAL_ENV=/opt/sglang"}}
		for _, line := range lines {
			tool := strings.Fields(line)[0]
			if standIns[tool] == "" {
				t.Errorf("nobody runs %q", line)
			}
			if strings.Contains(line, "launch_server") {
				p.serves(t, []string{"sh", "-c", "exec " + line}, strings.Fields(line)[7:]...)
			} else {
				p.exits(t, 0, "sh", "-c", line)
			}
			ran = append(ran, tool)
		}
		if out := p.exits(t, 0, "sgpatch", "history"); !strings.Contains(out, "trial on PCIe boxes") {
			t.Errorf("the reason did not arrive whole:\n%s", out)
		}
		p.exits(t, 0, "sgpatch", "revert")
		for _, line := range lines {
			if strings.Contains(line, "verify") {
				p.exits(t, 1, "sh", "-c", line)
			}
		}
	})
	slices.Sort(ran)
	if d := cmp.Diff([]string{"clush", "pdsh", "srun"}, slices.Compact(ran)); d != "" {
		t.Error(d)
	}
}

// TestClush gives the lines to clush itself, with a stand-in for ssh that hands the
// command to a shell here, as the far side does: the words have to arrive as meant.
func TestClush(t *testing.T) {
	clush, dir := tools.Path(t, "clush"), t.TempDir()
	must(t, os.WriteFile(dir+"/clush.conf", []byte("[Main]\nssh_path: "+dir+"/ssh\n"), 0o644), os.Symlink(clush, dir+"/clush"),
		os.WriteFile(dir+"/ssh", []byte("#!/bin/sh\nfor last; do :; done\nexec sh -c \"$last\"\n"), 0o755),
		os.WriteFile(dir+"/sgpatch", []byte("#!/bin/sh\nprintf '<%s>' \"$@\"; exit 3\n"), 0o755))
	var got []string
	for _, line := range fences(t, "README.md") {
		if !strings.HasPrefix(line, "clush -S") {
			continue
		}
		cmd := exec.Command("sh", "-c", line)
		cmd.Env = append(os.Environ(), "CLUSTERSHELL_CFGDIR="+dir, "PATH="+dir+":"+os.Getenv("PATH"))
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 3 || strings.Count(string(out), "<") == 0 {
			t.Errorf("%s ended with %d:\n%s", line, code, out)
		}
		for _, l := range strings.Split(string(out), "\n") {
			if strings.HasPrefix(l, "<") {
				got = append(got, l)
			}
		}
	}
	if d := cmp.Diff([]string{"<apply><--quiet><--reason><trial on PCIe boxes>", "<verify><--quiet>"}, got); d != "" {
		t.Error(d)
	}
}

// TestIndex: the index names each folder.
func TestIndex(t *testing.T) {
	text, err := os.ReadFile("README.md")
	must(t, err)
	all, err := os.ReadDir(".")
	must(t, err)
	for _, d := range all {
		if d.IsDir() && !strings.Contains(string(text), "("+d.Name()+")") {
			t.Errorf("README.md does not name %s", d.Name())
		}
	}
}
