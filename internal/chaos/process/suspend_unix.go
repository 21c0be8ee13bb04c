//go:build unix

package process

import (
	"os/exec"
	"syscall"
)

// Suspend stops the process without its knowledge, as a paused virtual machine does.
func (p *Process) Suspend() error { return p.Signal(syscall.SIGSTOP) }

// Resume lets a suspended process go on.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
