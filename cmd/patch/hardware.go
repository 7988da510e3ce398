package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sgpatch/patcher/patchset"
)

// nvidia is where NVIDIA's driver describes the GPUs, a folder each. Reading it
// starts no program and wakes no card.
var nvidia = "/proc/driver/nvidia/gpus"

// hardware says which GPUs this machine has, as "8 x NVIDIA H200"; "" if the
// driver says nothing.
func hardware() string {
	files, _ := filepath.Glob(filepath.Join(nvidia, "*", "information"))
	count := map[string]int{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && key == "Model" {
				count[strings.TrimSpace(value)]++
			}
		}
	}
	var all []string
	for model, n := range count {
		all = append(all, fmt.Sprintf("%d x %s", n, model))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// onSuch says whether a published result is of hardware like this. It names its
// hardware as "8 RTX PRO 6000 (PCIe Gen5), EAGLE-3".
func onSuch(hardware string, x patchset.Result) bool {
	count, rest, ok := strings.Cut(x.Hardware, " ")
	if _, err := strconv.Atoi(count); err != nil || !ok {
		return false
	}
	if i := strings.IndexAny(rest, "(,"); i >= 0 {
		rest = rest[:i]
	}
	n, model, ok := strings.Cut(hardware, " x ")
	return ok && n == count && strings.Contains(model, strings.TrimSpace(rest))
}
