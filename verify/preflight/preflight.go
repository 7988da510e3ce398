// Package preflight runs SGLang's own all-reduce on the GPUs of this machine,
// before a server loads a model for ten minutes: are its sums right, and is it
// faster than NCCL?
package preflight

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"sgpatch/patcher/install"
)

// script is what each rank runs.
//
//go:embed preflight.py
var script string

// Task says what is measured.
type Task struct {
	Python  string        // the interpreter that would start the server
	Ranks   int           // 0 is one for each visible GPU; more share GPUs, and are not timed against NCCL
	Sizes   []int         // bytes of a reduced tensor (bfloat16), in order
	Decide  int           // the size by which the verdict is given
	Calls   int           // all-reduces in one CUDA graph
	Repeat  int           // replays that are timed
	Limit   time.Duration // for all of it, the start of the interpreters included; for Profile once more
	Env     []string      // NAME=VALUE, for the ranks, beside the environment that is here
	Profile []string      // NAME=VALUE, an environment under which NCCL is timed once more

	// Scratch makes a directory of this owner for what the launcher leaves, and
	// gives the way to remove it.
	Scratch func(uid, gid int) (dir string, remove func(), err error)
}

// grace is how long after their time the ranks are left to say where they hang.
const grace = 3 * time.Second

// line is something that a rank said.
type line struct {
	Kind, Name  string
	Rank, Bytes int
	// kind class
	Disabled   bool
	FullNVLink *bool `json:"full_nvlink"`
	// kind used, numbers
	Used            bool
	How             string
	Turn, Wrong, At int
	Got, Want       string
	NaN             int `json:"nan"`
	// kind time
	US []float64 `json:"us"`
	// kind log, error, impossible
	Text, Why string
	// kind machine
	GPUs              []GPU
	Peer              [][]bool
	Torch, CUDA, NCCL string
}

// ran is what came of one start of all ranks.
type ran struct {
	lines  []line
	stderr string
	late   bool  // the time was up
	err    error // of the launcher
}

// ears find the ranks' lines among all that is printed, however much that is:
// NCCL_DEBUG prints there, too.
type ears struct {
	mark  string
	mu    sync.Mutex
	rest  []byte // of a line
	lines []line
}

const (
	maxLine  = 64 << 10 // a rank's line is shorter than PIPE_BUF
	maxLines = 1 << 18
)

func (e *ears) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rest = append(e.rest, p...)
	for {
		i := bytes.IndexByte(e.rest, '\n')
		if i < 0 {
			break
		}
		e.hear(e.rest[:i])
		e.rest = e.rest[i+1:]
	}
	e.rest = bytes.Clone(e.rest[max(0, len(e.rest)-maxLine):])
	return len(p), nil
}

func (e *ears) hear(text []byte) {
	i := bytes.Index(text, []byte(e.mark+" "))
	if i < 0 || len(e.lines) == maxLines {
		return
	}
	var l line
	if json.Unmarshal(text[i+len(e.mark)+1:], &l) == nil {
		e.lines = append(e.lines, l)
	}
}

func (e *ears) heard() []line {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.lines)
}

// Run measures. An error says that nothing could be: anything that was seen is a
// Result, a hang and a crash included.
func Run(ctx context.Context, t Task) (*Result, error) {
	before := look()
	main, err := t.start(ctx, false, t.Env)
	if err != nil {
		return nil, err
	}
	r := t.judge(main)
	if len(t.Profile) > 0 && r.timed() {
		again, err := t.start(ctx, true, t.Profile)
		if err != nil {
			return nil, err
		}
		r.addProfile(again)
	}
	r.Links, r.Errors = before.since()
	return r, nil
}

// start runs all ranks to their end, or to the end of their time.
func (t Task) start(ctx context.Context, ncclOnly bool, env []string) (*ran, error) {
	until := time.Now().Add(t.Limit)
	inTime, cancel := context.WithDeadline(ctx, until.Add(grace))
	defer cancel()
	mark := "sgpatch-" + rand.Text()
	task, err := json.Marshal(map[string]any{"mark": mark, "sizes": t.Sizes, "repeat": t.Repeat, "calls": t.Calls, "until": float64(until.UnixMilli()) / 1000, "nccl_only": ncclOnly})
	if err != nil {
		return nil, err
	}
	ranks := "gpu"
	if t.Ranks > 0 {
		ranks = strconv.Itoa(t.Ranks)
	}
	cmd, err := install.Command(inTime, t.Python, nil, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node="+ranks, "--no-python", t.Python, "-c", script, string(task))
	if err != nil {
		return nil, err
	}
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		cmd.Dir = "/" // Python looks in its working directory first, and root may stand in anybody's
	}
	if cr := cmd.SysProcAttr.Credential; cr != nil {
		uid, gid = int(cr.Uid), int(cr.Gid)
	}
	scratch, remove, err := t.Scratch(uid, gid) // the launcher makes a folder for logs, and leaves it
	if err != nil {
		return nil, fmt.Errorf("there is no place for the launcher's files: %w", err)
	}
	defer remove()
	cmd.Env = slices.Concat(cmd.Environ(), []string{"TMPDIR=" + scratch}, env)
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	stdout, stderr := &ears{mark: mark}, &install.Tail{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	ended := make(chan error, 1)
	go func() {
		// The ranks end with their launcher, and the launcher with us, whatever ends
		// us. The kernel counts the thread that started it as its parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		ended <- cmd.Run()
	}()
	select {
	case err = <-ended:
	case <-time.After(time.Until(until) + 5*grace): // it is stuck in the kernel, where no signal reaches it
		err = errors.New("it cannot be killed")
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return &ran{lines: stdout.heard(), stderr: string(stderr.Bytes()), late: time.Now().After(until), err: err}, nil
}

// where says what a rank was doing when it was heard of last.
func (l line) where() string {
	if l.Bytes == 0 {
		return l.Name
	}
	return fmt.Sprintf("%s at %s", l.Name, Size(l.Bytes))
}

// Size writes a number of bytes as people do: 42 KiB.
func Size(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// reason finds the line that says what went wrong in what Python printed.
func (r *ran) reason() string {
	for _, known := range []string{"Cuda is not available", "No module named"} {
		for text := range strings.Lines(r.stderr) {
			if i := strings.Index(text, known); i >= 0 {
				return strings.TrimSpace(text[i:])
			}
		}
	}
	last := ""
	for text := range strings.Lines(r.stderr) {
		if text = strings.TrimSpace(text); text != "" && !strings.HasPrefix(text, "=") && !strings.HasPrefix(text, "-") {
			last = text
		}
	}
	if last == "" && r.err != nil {
		last = r.err.Error()
	}
	return last
}

// visible is for a message: how the GPUs were chosen.
func visible() string {
	if v, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok {
		return " (CUDA_VISIBLE_DEVICES=" + v + ")"
	}
	return ""
}
