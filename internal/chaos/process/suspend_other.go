//go:build !unix

package process

import (
	"errors"
	"os/exec"
)

// Suspend is not possible here.
func (p *Process) Suspend() error { return errors.ErrUnsupported }

// Resume is not possible here.
func (p *Process) Resume() error { return errors.ErrUnsupported }

func ownGroup(*exec.Cmd) {}
