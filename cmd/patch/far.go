package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/pflag"

	"sgpatch/remote"
)

// farVerb is the argument by which this program knows that it was started over
// SSH by itself. It is followed by a nonce and by how to prove itself; the request comes on standard
// input, whose end is an interrupt, and the answer goes to standard output.
const farVerb = "_answer"

// farRequest is what the caller wants: a command line, and the patch sets that
// came along.
type farRequest struct {
	Argv []string      `json:"argv"`
	Sets []carriedSets `json:"sets"`
}

// farAnswer is a report and what its JSON form leaves out.
type farAnswer struct {
	Report  *Report        `json:"report"`
	Text    string         `json:"text,omitempty"`
	Enabled []string       `json:"enabled,omitempty"`
	History []HistoryEntry `json:"history,omitzero"`
	List    []listEntry    `json:"list,omitzero"`
}

func pack(r *Report) farAnswer {
	a := farAnswer{Report: r, Text: r.text}
	for _, s := range r.Sets {
		if s.enabled {
			a.Enabled = append(a.Enabled, s.ID)
		}
	}
	switch {
	case r.Entries == nil:
	case r.Command == "history":
		a.History = []HistoryEntry{}
	default:
		a.List = []listEntry{}
	}
	for _, e := range r.Entries {
		switch e := e.(type) {
		case HistoryEntry:
			a.History = append(a.History, e)
		case listEntry:
			a.List = append(a.List, e)
		}
	}
	r.Entries = nil
	return a
}

func (a farAnswer) unpack() *Report {
	r := a.Report
	r.text = a.Text
	for i, s := range r.Sets {
		r.Sets[i].enabled = contains(a.Enabled, s.ID)
	}
	if a.History != nil || a.List != nil {
		r.Entries = []any{}
	}
	for _, e := range a.History {
		r.Entries = append(r.Entries, e)
	}
	for _, e := range a.List {
		r.Entries = append(r.Entries, e)
	}
	return r
}

// answerFar is this program on the far side.
func answerFar(nonce, how string, stdin io.Reader, stdout io.Writer) int {
	signal.Ignore(syscall.SIGPIPE) // the caller may be gone; what was begun is finished all the same
	proof, err := remote.Proof(how)
	if err != nil {
		fmt.Fprintf(stdout, "sgpatch-%s refuse %v\n", nonce, err)
		return exitRefused
	}
	fmt.Fprintf(stdout, "sgpatch-%s hello %s\n", nonce, proof)
	var q farRequest
	dec := json.NewDecoder(stdin)
	if err := dec.Decode(&q); err != nil || len(q.Argv) == 0 {
		return exitUsage // the caller is gone, or is no sgpatch
	}
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals...)
	go func() {
		io.Copy(io.Discard, stdin)
		stop()
	}()
	r := q.execute(ctx)
	json.NewEncoder(stdout).Encode(pack(r))
	return r.Exit
}

func (q farRequest) execute(ctx context.Context) *Report {
	c := lookup(q.Argv[0])
	r := newReport(q.Argv[0])
	if c == nil {
		r.fail(usagef("there is no command %q", q.Argv[0]))
		return r
	}
	o, err := parse(c, q.Argv[1:])
	if err != nil {
		r.fail(err)
		return r
	}
	o.carried = q.Sets
	return o.execute(ctx)
}

// request makes the command line that the hosts get, and packs --patches.
func (o *options) request() ([]byte, error) {
	if _, _, err := o.loadSets(); err != nil { // what is wrong with them is said here, once
		return nil, err
	}
	return o.pack(o.command.name, o.given(func(name string) bool { return !stayHere(name) }), o.args)
}

// requestFor is another command on the same install.
func (o *options) requestFor(command string, args []string) ([]byte, error) {
	common := pflag.NewFlagSet("", pflag.ContinueOnError)
	commonFlags(common, &options{})
	return o.pack(command, o.given(func(name string) bool { return !stayHere(name) && common.Lookup(name) != nil }), args)
}

// given lists the flags of the line that are wanted.
func (o *options) given(wanted func(name string) bool) (all []string) {
	o.flags.Visit(func(f *pflag.Flag) {
		if !wanted(f.Name) {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			all = append(all, "--"+f.Name+"="+v)
		}
	})
	return all
}

func (o *options) pack(command string, flags, args []string) ([]byte, error) {
	q := farRequest{Argv: slices.Concat([]string{command}, flags, args)}
	for _, dir := range o.patches {
		c, err := carry(dir)
		if err != nil {
			return nil, &loadError{err}
		}
		q.Sets = append(q.Sets, c)
	}
	return json.Marshal(q)
}
