package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Main is the worker's side: it reads a job and does it. An error has been told to the parent as well.
func Main(ctx context.Context, in io.Reader, out io.Writer) error {
	lines, answers := bufio.NewScanner(in), json.NewEncoder(out)
	fail := func(err error) error {
		return errors.Join(err, answers.Encode(Sample{Error: err.Error()}))
	}
	var job Job
	if !lines.Scan() {
		return fail(errors.New("no job"))
	}
	if err := json.Unmarshal(lines.Bytes(), &job); err != nil {
		return fail(fmt.Errorf("job: %w", err))
	}
	m := &meter{}
	work, err := open(ctx, job, m)
	if err != nil {
		return fail(err)
	}
	defer work.close()
	if err := answers.Encode(m.sample()); err != nil {
		return err
	}
	if !lines.Scan() {
		return nil
	}
	m.begin()
	if job.Rows > 0 {
		if err := work.run(ctx); err != nil {
			return fail(err)
		}
		m.finish()
		return answers.Encode(m.sample())
	}
	return serve(ctx, work, lines, answers, m)
}

// serve works until the input ends, and answers each of its lines.
func serve(ctx context.Context, work *task, lines *bufio.Scanner, answers *json.Encoder, m *meter) error {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- work.run(ctx) }()
	for ok := true; ok; ok = lines.Scan() {
		if err := answers.Encode(m.sample()); err != nil {
			break // the parent has gone
		}
	}
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// task is a job that is ready to be done.
type task struct {
	run   func(context.Context) error
	close func()
}

func open(ctx context.Context, job Job, m *meter) (*task, error) {
	switch job.Kind {
	case Outbox:
		return openOutbox(ctx, job, m)
	case Forwarder, Pooled, Queue:
		return openForwarder(ctx, job, m)
	case Textbook:
		return openTextbook(ctx, job, m)
	case Single:
		return openSingle(ctx, job, m)
	case Publish:
		return openPublish(ctx, job)
	case Drain:
		return openDrain(ctx, job, m)
	default:
		return nil, fmt.Errorf("unknown kind %q", job.Kind)
	}
}
