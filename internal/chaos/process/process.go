// Package process starts programs and ends those that it has started, and no others.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Program is what to start.
type Program struct {
	// Name stands in errors.
	Name string
	// Path and Args are the program and its arguments; Env nil means the environment of this process.
	Path string
	Args []string
	Env  []string
	// Log is the file that both outputs are appended to.
	Log string
}

// Process is a running program. Its owner calls End or Wait. Safe for concurrent use.
type Process struct {
	program Program
	cmd     *exec.Cmd
	done    chan struct{}
}

// Start starts a program, in a process group of its own: an interrupt from the terminal is for this process alone, which
// then ends the others in an order of its own choice. The process outlives ctx: its owner ends it.
func Start(ctx context.Context, p Program) (*Process, error) {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	defer log.Close() //nolint:errcheck // the program has its own copy
	cmd := command(context.WithoutCancel(ctx), p)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	started := &Process{program: p, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(started.done)
		_ = cmd.Wait() // the exit code says it
	}()
	return started, nil
}

// Run runs a program to its end.
func Run(ctx context.Context, p Program) error {
	out, err := command(ctx, p).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", p.Name, err, out)
	}
	return nil
}

func command(ctx context.Context, p Program) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.Path, p.Args...) //nolint:gosec // servers installed here, and our own program
	cmd.Env, cmd.Dir = p.Env, filepath.Dir(p.Log)
	ownGroup(cmd)
	return cmd
}

// Signal sends a signal. A process that has ended gets none, and that is no error.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %v to %s: %w", s, p.program.Name, err)
	}
	return nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Code is the exit code of a process that has ended, -1 when a signal ended it.
func (p *Process) Code() int { return p.cmd.ProcessState.ExitCode() }

// End asks the process to end by a signal and waits. One that has not ended after patience is killed, which is an error.
func (p *Process) End(s os.Signal, patience time.Duration) error {
	if err := p.Signal(s); err != nil {
		return errors.Join(err, p.Kill())
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return errors.Join(fmt.Errorf("%s did not end within %v after %v", p.program.Name, patience, s), p.Kill())
	}
}

// Kill ends the process at once, also a suspended one, and waits until it is gone.
func (p *Process) Kill() error {
	err := p.Signal(os.Kill)
	<-p.done
	return err
}
