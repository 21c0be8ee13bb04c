package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/internal/chaos/process"
)

// Times of the dispatchers: short, so that a run of minutes sees many leases change hands. Calls may take longer than a
// lease lasts.
const (
	leaseTTL        = 2 * time.Second
	shutdownTimeout = 5 * time.Second
	endPatience     = shutdownTimeout + 10*time.Second // a shutdown, its last words to store and broker included
)

// dispatcher is one `outbox run`. It is used by one goroutine at a time.
type dispatcher struct {
	program process.Program
	running *process.Process
}

// newDispatcher writes the configuration of one between the addresses.
func newDispatcher(dir, binary string, n int, databaseURL, broker string) (*dispatcher, error) {
	name := fmt.Sprintf("dispatcher-%d", n)
	config := fmt.Sprintf(`store: {type: postgres, postgres: {dsn: %q}}
broker: %s
dispatcher:
  name: %s
  lease_ttl: %v
  shutdown_timeout: %v
  publish_timeout: 3s
  outage: {initial: 100ms, max: 2s}
`, databaseURL, broker, name, leaseTTL, shutdownTimeout)
	file := filepath.Join(dir, name+".yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	return &dispatcher{program: process.Program{
		Name: name, Path: binary, Args: []string{"run", "--config", file}, Env: cleanEnvironment(),
		Log: filepath.Join(dir, name+".log"),
	}}, nil
}

// cleanEnvironment is ours without settings of an outbox, which would override the configuration.
func cleanEnvironment() (clean []string) {
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "OUTBOX_") {
			clean = append(clean, variable)
		}
	}
	return clean
}

func (d *dispatcher) start(ctx context.Context) (err error) {
	d.running, err = process.Start(ctx, d.program)
	return err
}

// stillRuns says so unless the dispatcher has ended by itself, which none does whatever happens around it.
func (d *dispatcher) stillRuns() error {
	select {
	case <-d.running.Done():
		return fmt.Errorf("%s has ended by itself with code %d", d.program.Name, d.running.Code())
	default:
		return nil
	}
}

// terminate ends the dispatcher in order. Amid faults it may run out of time, as the database can be away for longer than
// that, but has to say so.
func (d *dispatcher) terminate(amidFaults bool) error {
	err := errors.Join(d.stillRuns(), d.running.End(syscall.SIGTERM, endPatience))
	if err != nil || d.running.Code() == 0 {
		return err
	}
	log, err := os.ReadFile(d.program.Log)
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	if amidFaults && bytes.Contains(lines[len(lines)-1], []byte(core.ErrShutdownTimeout.Error())) {
		return err
	}
	return errors.Join(err, fmt.Errorf("%s ended with code %d after SIGTERM", d.program.Name, d.running.Code()))
}

// stop ends the dispatcher at once, running or not.
func (d *dispatcher) stop() {
	if d.running != nil {
		_ = d.running.Kill() // it is gone when this returns
	}
}
