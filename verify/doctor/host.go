package doctor

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"sgpatch/verify/smi"
)

// gpu is one as nvidia-smi has it.
type gpu struct {
	index           int
	name            string
	capability      string
	bus             string
	width, widthMax int
	bar             int64 // bytes of the window through which others see its memory
}

var columns = []string{"index", "name", "compute_cap", "pci.bus_id", "pcie.link.width.current", "pcie.link.width.max"}

// look asks once what several checks want to know.
func (s *Subject) look(ctx context.Context) *facts {
	f := &facts{}
	out, err := s.SMI(ctx, smi.Query(columns...)...)
	if err != nil {
		f.smi = err
		return f
	}
	for _, r := range smi.Rows(out, len(columns)) {
		g := gpu{index: r.Number(0), name: r[1], capability: r[2], bus: r[3], width: r.Number(4), widthMax: r.Number(5)}
		g.bar = s.window(g.bus)
		f.gpus = append(f.gpus, g)
		if !slices.Contains(f.capabilities, g.capability) {
			f.capabilities = append(f.capabilities, g.capability)
		}
	}
	if topo, err := s.SMI(ctx, "topo", "-m"); err == nil && len(f.gpus) > 1 {
		f.link = linkOf(topo, len(f.gpus))
	}
	return f
}

// linkOf reads nvidia-smi's matrix: NV and a number between every two GPUs is
// NVLink, anything else somewhere is PCIe.
func linkOf(matrix []byte, gpus int) string {
	linked, seen := 0, 0
	for line := range bytes.Lines(matrix) {
		v := strings.Fields(string(line))
		if len(v) <= gpus || !strings.HasPrefix(v[0], "GPU") || strings.HasPrefix(v[1], "GPU") {
			continue
		}
		for _, cell := range v[1 : gpus+1] {
			if cell == "X" {
				continue
			}
			seen++
			if strings.HasPrefix(cell, "NV") {
				linked++
			}
		}
	}
	switch {
	case seen == 0:
		return ""
	case linked == seen:
		return "nvlink"
	}
	return "pcie"
}

// window is the size of a GPU's second memory region (BAR1), 0 if unknown.
func (s *Subject) window(bus string) int64 {
	bus = strings.ToLower(bus)
	if i := strings.Index(bus, ":"); i > 4 {
		bus = bus[i-4:] // the kernel's domains have four digits
	}
	text, err := fs.ReadFile(s.FS, path.Join("sys/bus/pci/devices", bus, "resource"))
	if err != nil {
		return 0
	}
	most := int64(0)
	for line := range bytes.Lines(text) {
		var start, end, flags int64
		if n, _ := fmt.Sscanf(string(line), "0x%x 0x%x 0x%x", &start, &end, &flags); n == 3 && end > start {
			most = max(most, end-start+1)
		}
	}
	return most
}

func gpus(_ context.Context, s *Subject) []Check {
	f := s.facts
	switch {
	case f.smi != nil:
		return []Check{{"GPUs", Warn, "nvidia-smi cannot be asked: " + f.smi.Error(), ""}}
	case len(f.gpus) == 0:
		return []Check{{"GPUs", Warn, "nvidia-smi knows of none", "nvidia-smi"}}
	}
	count := map[string]int{}
	for _, g := range f.gpus {
		count[g.name+" ("+g.capability+")"]++
	}
	var kinds []string
	for name, n := range count {
		kinds = append(kinds, fmt.Sprintf("%d x %s", n, name))
	}
	slices.Sort(kinds)
	all := ok("GPUs", "%s", strings.Join(kinds, ", "))
	switch {
	case f.link == "nvlink":
		all = append(all, Check{"GPUs", Note, "all are linked by NVLink: SGLang uses its all-reduce here by itself, and the gate has nothing to do", ""})
	case len(f.gpus) < 3:
		all = append(all, Check{"GPUs", Note, "the gate is about more than two GPUs", ""})
	}
	for _, g := range f.gpus {
		if g.width < g.widthMax {
			all = append(all, Check{"link", Warn, fmt.Sprintf("GPU %d (%s) has %d of %d PCIe lanes", g.index, g.bus, g.width, g.widthMax), "look for a riser, a shared slot or a BIOS setting"})
		}
		if g.bar > 0 && g.bar <= 256<<20 {
			all = append(all, Check{"link", Warn, fmt.Sprintf("GPU %d (%s) shows others a window of %d MiB: resizable BAR is off", g.index, g.bus, g.bar>>20), "switch it on in the BIOS (Above 4G Decoding, Re-Size BAR)"})
		}
	}
	return all
}

// peers asks nvidia-smi which GPUs may read each other's memory.
func peers(ctx context.Context, s *Subject) []Check {
	if len(s.facts.gpus) < 2 {
		return nil
	}
	out, err := s.SMI(ctx, "topo", "-p2p", "r")
	if err != nil {
		return nil // an old driver
	}
	var bad []string
	for line := range bytes.Lines(out) {
		v := strings.Fields(string(line))
		if len(v) <= len(s.facts.gpus) || !strings.HasPrefix(v[0], "GPU") || strings.HasPrefix(v[1], "GPU") {
			continue
		}
		for i, cell := range v[1 : len(s.facts.gpus)+1] {
			if cell != "X" && cell != "OK" {
				bad = append(bad, fmt.Sprintf("%s-GPU%d (%s)", v[0], i, cell))
			}
		}
	}
	if len(bad) > 0 {
		return []Check{{"peers", Fail, "GPUs that cannot read each other's memory: " + strings.Join(bad, ", "), "nvidia-smi topo -p2p r; the gate stays shut by SGLang's own test"}}
	}
	return ok("peers", "all GPUs can read each other's memory, as the driver says")
}

// iommu says whether DMA goes through an address translation, with which peer
// access is slow or hangs.
func iommu(_ context.Context, s *Subject) []Check {
	kinds, err := fs.Glob(s.FS, "sys/kernel/iommu_groups/*/type")
	if err != nil || len(kinds) == 0 || len(s.facts.gpus) == 0 {
		return nil
	}
	for _, k := range kinds {
		if text, err := fs.ReadFile(s.FS, k); err == nil && strings.HasPrefix(string(text), "DMA") {
			return []Check{{"IOMMU", Warn, "DMA is translated: peer access between GPUs is slow or hangs with that on many boards", "iommu=pt on the kernel's command line, or off in the BIOS; ACS off on the bridges"}}
		}
	}
	return ok("IOMMU", "DMA of devices is not translated")
}

// Of PCI's configuration space: a bridge's class, the first extended capability,
// and in that of access control (ACS) the bits that send what one device writes
// to another up to the root first.
const (
	bridgeClass = 0x0604
	extended    = 0x100
	acsID       = 0x000d
	redirects   = 1<<2 | 1<<3 | 1<<4 // requests, completions, upstream forwarding
)

// acs looks for bridges that send traffic between GPUs around by the root. Only
// root may read that far.
func acs(_ context.Context, s *Subject) []Check {
	if len(s.facts.gpus) < 2 {
		return nil
	}
	names, _ := fs.Glob(s.FS, "sys/bus/pci/devices/*/config")
	var on []string
	read := 0
	for _, name := range names {
		space, err := fs.ReadFile(s.FS, name)
		if err != nil || len(space) <= extended || binary.LittleEndian.Uint16(space[10:]) != bridgeClass {
			continue
		}
		read++
		if control, ok := acsControl(space); ok && control&redirects != 0 {
			on = append(on, path.Base(path.Dir(name)))
		}
	}
	switch {
	case len(on) > 0:
		return []Check{{"ACS", Warn, "bridges that send traffic between GPUs by way of the root: " + strings.Join(on, " "), "switch ACS off in the BIOS, or by setpci, unless virtual machines need it"}}
	case read == 0:
		return nil
	}
	return ok("ACS", "no bridge sends traffic between GPUs around")
}

// acsControl finds the control word of a bridge's ACS capability.
func acsControl(space []byte) (control uint16, ok bool) {
	at := extended
	for range 64 { // a list that does not end is none
		if at < extended || at+8 > len(space) {
			return 0, false
		}
		head := binary.LittleEndian.Uint32(space[at:])
		if head&0xffff == acsID {
			return binary.LittleEndian.Uint16(space[at+6:]), true
		}
		at = int(head >> 20)
	}
	return 0, false
}

// peerCache is SGLang's memory of its peer test, which knows GPUs by number only.
func peerCache(_ context.Context, s *Subject) (all []Check) {
	names, _ := fs.Glob(s.FS, path.Join(strings.TrimPrefix(s.Home, "/"), ".cache/sglang/gpu_p2p_access_cache_for_*.json"))
	boot := s.booted()
	for _, name := range names {
		st, err := fs.Stat(s.FS, name)
		if err != nil {
			continue
		}
		if text, err := fs.ReadFile(s.FS, name); err == nil && bytes.Contains(text, []byte("false")) {
			all = append(all, Check{"peer cache", Warn, "/" + name + " says that some GPUs do not reach each other", "rm /" + name + ", if that has been mended"})
		} else if st.ModTime().Before(boot) {
			all = append(all, Check{"peer cache", Warn, fmt.Sprintf("/%s is of %s, before this machine was started: cards or driver may have changed since", name, st.ModTime().Format("2006-01-02")), "rm /" + name})
		}
	}
	return all
}

// booted is when the machine was started, the beginning of time if unknown.
func (s *Subject) booted() time.Time {
	text, err := fs.ReadFile(s.FS, "proc/stat")
	if err != nil {
		return time.Time{}
	}
	for line := range bytes.Lines(text) {
		if v, ok := strings.CutPrefix(string(line), "btime "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return time.Unix(n, 0)
		}
	}
	return time.Time{}
}
