// Package smi asks nvidia-smi about the GPUs of this machine.
package smi

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Patience is how long nvidia-smi may take.
var Patience = 20 * time.Second

// Ask returns what nvidia-smi prints. Where the driver hangs, it hangs in the
// kernel, and not even a kill ends it: then it is left behind.
func Ask(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	type answer struct {
		out []byte
		err error
	}
	said := make(chan answer, 1)
	go func() {
		defer cancel()
		cmd := exec.CommandContext(ctx, "nvidia-smi", args...)
		cmd.WaitDelay = time.Second // what it started may hold its output
		out, err := cmd.Output()
		said <- answer{out, err}
	}()
	select {
	case a := <-said:
		return a.out, a.err
	case <-time.After(Patience + 2*time.Second):
		return nil, errors.New("it does not answer, and cannot be killed")
	}
}

// Query are the arguments that ask for columns of every GPU.
func Query(columns ...string) []string {
	return []string{"--query-gpu=" + strings.Join(columns, ","), "--format=csv,noheader,nounits"}
}

// Row is one GPU's answer to a Query.
type Row []string

// Rows reads the answer to a Query for so many columns; other lines are none.
func Rows(out []byte, columns int) (all []Row) {
	for line := range bytes.Lines(out) {
		if r := Row(strings.Split(strings.TrimSpace(string(line)), ", ")); len(r) == columns {
			all = append(all, r)
		}
	}
	return all
}

// Number is a column as a number; what is none, as "[N/A]", is 0.
func (r Row) Number(i int) int {
	n, _ := strconv.Atoi(r[i])
	return n
}
