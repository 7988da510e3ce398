package doctor

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"sgpatch/verify"
)

// process is one of SGLang that runs.
type process struct {
	pid     int
	started time.Time
	env     map[string]string // as it was started with; nil if it may not be read
}

// ticks is the kernel's unit of a process's start, in every build for Linux.
const ticks = 100

// running finds processes that were started as SGLang, or call themselves so.
func (s *Subject) running() (all []process) {
	dirs, _ := fs.Glob(s.FS, "proc/[0-9]*")
	boot := s.booted()
	for _, dir := range dirs {
		line, err := fs.ReadFile(s.FS, dir+"/cmdline")
		if err != nil || !ofSGLang(line) {
			continue
		}
		p := process{}
		p.pid, _ = strconv.Atoi(path.Base(dir))
		stat, _ := fs.ReadFile(s.FS, dir+"/stat")
		if boot.IsZero() {
			// nobody knows when anything was started
		} else if v := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(v) > 19 {
			n, _ := strconv.ParseInt(v[19], 10, 64)
			p.started = boot.Add(time.Duration(n) * time.Second / ticks)
		}
		if text, err := fs.ReadFile(s.FS, dir+"/environ"); err == nil {
			p.env = map[string]string{}
			for kv := range bytes.SplitSeq(text, []byte{0}) {
				if k, v, ok := strings.Cut(string(kv), "="); ok {
					p.env[k] = v
				}
			}
		}
		all = append(all, p)
	}
	return all
}

// ofSGLang knows "python -m sglang.launch_server", the script sglang, and the
// names that its processes give themselves ("sglang::scheduler").
func ofSGLang(cmdline []byte) bool {
	words := strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
	for i, w := range words {
		if strings.HasPrefix(w, "sglang::") || (w == "-m" && i+1 < len(words) && (words[i+1] == "sglang" || strings.HasPrefix(words[i+1], "sglang."))) {
			return true
		}
	}
	return len(words) > 1 && path.Base(words[1]) == "sglang"
}

// servers says whether what runs has what is in place, or is to be restarted.
// What sitecustomize sets is in the environment of processes that a server
// starts, and not in its own as the kernel has it: the youngest ones tell.
func servers(_ context.Context, s *Subject) (all []Check) {
	if s.Site == nil {
		return nil
	}
	running := s.running()
	if len(running) == 0 {
		return nil
	}
	last := s.Site.Receipt.Last
	for _, p := range running {
		name := fmt.Sprintf("server %d", p.pid)
		switch {
		case last.Command != "" && !p.started.IsZero() && p.started.Before(last.Time):
			all = append(all, Check{name, Warn, fmt.Sprintf("it was started at %s, before the last %s here (%s)", p.started.UTC().Format("2006-01-02 15:04:05 MST"), last.Command, last.Time.UTC().Format("2006-01-02 15:04:05 MST")), "restart it"})
		case p.env == nil:
			all = append(all, Check{name, Note, "its environment may not be read", "sudo sgpatch doctor"})
		case p.started.IsZero():
			all = append(all, Check{name, Note, "nobody knows when it was started" + s.inForce(p), ""})
		default:
			all = append(all, ok(name, "started at %s%s", p.started.UTC().Format("2006-01-02 15:04:05 MST"), s.inForce(p))...)
		}
	}
	return all
}

// inForce tells which variables of the sets a process was started with.
func (s *Subject) inForce(p process) string {
	var have []string
	for _, v := range s.Site.Views() {
		if !v.Enabled {
			continue
		}
		for _, e := range v.Env {
			if got, ok := p.env[e.Name]; ok && (got == e.Value || (e.Switch && verify.On(got))) {
				have = append(have, e.Name+"="+got)
			}
		}
	}
	if len(have) == 0 {
		return ""
	}
	return ", with " + strings.Join(have, " ")
}
