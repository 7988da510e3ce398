// Command measure runs a program as a user and under a umask, and writes to
// descriptor 3 how it ended and what it cost. A process of its own does that,
// because the kernel counts the memory of whoever started a program as the
// program's; it is small and fast, which a test binary is not.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

func main() {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if uid, err := strconv.Atoi(os.Getenv("MEASURE_UID")); err == nil && uid != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	if mask, err := strconv.ParseInt(os.Getenv("MEASURE_UMASK"), 8, 32); err == nil {
		syscall.Umask(int(mask))
	}
	cmd.Run()
	if p := cmd.ProcessState; p != nil {
		u := p.SysUsage().(*syscall.Rusage)
		fmt.Fprintln(os.NewFile(3, "cost"), p.ExitCode(), int64(p.UserTime()+p.SystemTime()), u.Maxrss<<10)
	}
}
