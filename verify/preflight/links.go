package preflight

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Link is how a GPU is attached, as nvidia-smi says it: generation and width of
// PCIe as they are, and as they can be. GPUs lower them when they are idle.
type Link struct {
	GPU      int    `json:"gpu"`
	Bus      string `json:"bus"`
	Gen      int    `json:"gen"`
	GenMax   int    `json:"gen_max"`
	Width    int    `json:"width"`
	WidthMax int    `json:"width_max"`
	Driver   string `json:"driver"`
	ecc      int
}

// sight is what the machine said of its GPUs before the run.
type sight struct {
	links []Link
	log   *os.File // the kernel's, from now on; nil where it may not be read
}

const query = "index,pci.bus_id,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max,driver_version,ecc.errors.uncorrected.volatile.total"

func look() sight {
	s := sight{links: links()}
	if log, err := os.Open("/dev/kmsg"); err == nil {
		log.Seek(0, io.SeekEnd)
		s.log = log
	}
	return s
}

// patience is for nvidia-smi.
var patience = 20 * time.Second

// links asks nvidia-smi; without it there are none. Where the driver hangs, it
// hangs in the kernel, and not even a kill ends it: then it is left behind.
func links() []Link {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	said := make(chan []byte, 1)
	go func() {
		defer cancel()
		cmd := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu="+query, "--format=csv,noheader,nounits")
		cmd.WaitDelay = time.Second // what it started may hold its output
		out, err := cmd.Output()
		if err != nil {
			out = nil
		}
		said <- out
	}()
	select {
	case out := <-said:
		return readLinks(out)
	case <-time.After(patience + 2*time.Second):
		return nil
	}
}

func readLinks(out []byte) (all []Link) {
	for text := range bytes.Lines(out) {
		f := strings.Split(strings.TrimSpace(string(text)), ", ")
		if len(f) != strings.Count(query, ",")+1 {
			continue
		}
		n := func(i int) int { v, _ := strconv.Atoi(f[i]); return v } // "[N/A]" is 0
		all = append(all, Link{GPU: n(0), Bus: f[1], Gen: n(2), GenMax: n(3), Width: n(4), WidthMax: n(5), Driver: f[6], ecc: n(7)})
	}
	return all
}

// since returns how the GPUs are attached now, and the errors since.
func (s sight) since() (now []Link, errors []string) {
	now, errors = links(), []string{}
	for i, l := range now {
		if i < len(s.links) && l.ecc > s.links[i].ecc {
			errors = append(errors, fmt.Sprintf("GPU %d: %d uncorrected memory errors", l.GPU, l.ecc-s.links[i].ecc))
		}
	}
	if now == nil {
		now = []Link{}
	}
	if s.log == nil {
		return now, errors
	}
	defer s.log.Close()
	fd := int(s.log.Fd())
	if syscall.SetNonblock(fd, true) != nil {
		return now, errors
	}
	record := make([]byte, 8192) // one is read at a time
	for {
		n, err := syscall.Read(fd, record)
		if err == syscall.EPIPE { // older ones were written over; the rest is still there
			continue
		}
		if err != nil || n <= 0 {
			return now, errors
		}
		if i := bytes.Index(record[:n], []byte("NVRM: Xid")); i >= 0 {
			text, _, _ := strings.Cut(string(record[i:n]), "\n")
			errors = append(errors, text)
		}
	}
}
