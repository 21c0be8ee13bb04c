//go:build unix

package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-outbox/outbox/internal/chaos/process"
)

const patience = 20 * time.Second

// shell is a program that runs a script.
func shell(t *testing.T, script string) process.Program {
	t.Helper()
	return process.Program{Name: "script", Path: "/bin/sh", Args: []string{"-c", script}, Log: filepath.Join(t.TempDir(), "log")}
}

func start(t *testing.T, p process.Program) *process.Process {
	t.Helper()
	started, err := process.Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = started.Kill() })
	return started
}

func TestEndInOrder(t *testing.T) {
	t.Parallel()
	ready := filepath.Join(t.TempDir(), "ready")
	program := shell(t, `trap 'echo over; exit 7' TERM; : >"$0"; while :; do sleep 0.01; done`)
	program.Args = append(program.Args, ready)
	p := start(t, program)
	awaitFile(t, ready) // the trap is set by then
	if err := p.End(syscall.SIGTERM, patience); err != nil || p.Code() != 7 {
		t.Errorf("got %v, code %d; want code 7", err, p.Code())
	}
	if log, err := os.ReadFile(program.Log); err != nil || string(log) != "over\n" {
		t.Errorf("the log has %q, %v", log, err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("a signal to a process that has ended: %v", err)
	}
}

func awaitFile(t *testing.T, name string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		if _, err := os.Stat(name); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not there", name)
		}
	}
}

func TestOneThatDoesNotEndIsKilled(t *testing.T) {
	t.Parallel()
	ready := filepath.Join(t.TempDir(), "ready")
	program := shell(t, `trap '' TERM; : >"$0"; exec sleep 60`)
	program.Args = append(program.Args, ready)
	p := start(t, program)
	awaitFile(t, ready)
	if err := p.End(syscall.SIGTERM, time.Millisecond); err == nil || p.Code() != -1 {
		t.Errorf("got %v, code %d; want an error, and the death by a signal", err, p.Code())
	}
}

func TestSuspendAndResume(t *testing.T) {
	t.Parallel()
	p := start(t, shell(t, `exec sleep 0.2`))
	if err := p.Suspend(); err != nil {
		t.Fatal(err)
	}
	timer := time.NewTimer(500 * time.Millisecond)
	select {
	case <-p.Done():
		t.Error("a suspended process has ended")
	case <-timer.C:
	}
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if p.Code() != 0 {
		t.Errorf("code %d, want 0", p.Code())
	}
}

func TestRunTellsWhatAProgramSaid(t *testing.T) {
	t.Parallel()
	if err := process.Run(t.Context(), shell(t, `exit 0`)); err != nil {
		t.Error(err)
	}
	if err := process.Run(t.Context(), shell(t, `echo "no disk" >&2; exit 3`)); err == nil || !strings.Contains(err.Error(), "no disk") {
		t.Errorf("got %v; want what the program said", err)
	}
	missing := process.Program{Name: "missing", Path: "/nonexistent", Log: filepath.Join(t.TempDir(), "log")}
	if _, err := process.Start(t.Context(), missing); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("got %v; want the name of the program", err)
	}
}
