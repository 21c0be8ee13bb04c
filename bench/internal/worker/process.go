package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Argument tells a program that it has been started as a worker: main then calls Main.
const Argument = "worker"

// Process is a running worker. Not safe for concurrent use.
type Process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *json.Decoder
}

// Start starts this program again as a worker and returns when that is ready. The end of ctx kills it.
func Start(ctx context.Context, job Job) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.CommandContext(ctx, program, Argument)} //nolint:gosec // it is this program
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.answers = json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(p.in).Encode(job); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	if _, err := p.answer(); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// Sample asks the worker what it did so far. The first call starts the work; for a job that ends by itself it returns
// when everything is done.
func (p *Process) Sample() (Sample, error) {
	if _, err := fmt.Fprintln(p.in); err != nil {
		return Sample{}, fmt.Errorf("worker: %w", err)
	}
	return p.answer()
}

func (p *Process) answer() (Sample, error) {
	var s Sample
	if err := p.answers.Decode(&s); err != nil {
		return s, fmt.Errorf("worker: it ended without an answer: %w", err)
	}
	if s.Error != "" {
		return s, errors.New("worker: " + s.Error)
	}
	return s, nil
}

// Stop lets the worker finish what it does and waits for its end.
func (p *Process) Stop() error {
	_ = p.in.Close() // the worker may have ended already
	return p.cmd.Wait()
}

// Do runs a job that ends by itself.
func Do(ctx context.Context, job Job) (Sample, error) {
	p, err := Start(ctx, job)
	if err != nil {
		return Sample{}, err
	}
	s, err := p.Sample()
	if stop := p.Stop(); err == nil {
		err = stop
	}
	return s, err
}
