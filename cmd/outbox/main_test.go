package main_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // rows are written and read by plain SQL
	_ "modernc.org/sqlite"
)

// patience bounds the wait for what must happen.
const patience = time.Minute

// binary is the program under test, as a user would build it.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "outbox-test-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "outbox")
	if out, err := exec.CommandContext(context.Background(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// result is what a command did.
type result struct {
	code        int
	out, errOut string
}

// outbox runs a command to its end.
func outbox(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("outbox %v: %v", args, err)
	}
	return result{code: cmd.ProcessState.ExitCode(), out: out.String(), errOut: errOut.String()}
}

// process is a command that goes on, until it is told to stop.
type process struct {
	cmd  *exec.Cmd
	logs chan string
	done chan struct{}
}

// start runs a command in the background.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, args...) // the cleanup ends it
	p := &process{cmd: cmd, logs: make(chan string, 10_000), done: make(chan struct{})}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		defer close(p.logs)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			select {
			case p.logs <- lines.Text():
			default: // nobody waits for this one
			}
		}
		_, _ = io.Copy(io.Discard, stderr)
		_ = p.cmd.Wait() // the exit code is looked at
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
	})
	return p
}

// waitFor waits for a log line that contains text, and returns it.
func (p *process) waitFor(t *testing.T, text string) string {
	t.Helper()
	timeout := time.After(patience)
	var seen []string
	for {
		select {
		case line, ok := <-p.logs:
			if !ok {
				t.Fatalf("the process ended without logging %q; it said:\n%s", text, strings.Join(seen, "\n"))
			}
			if seen = append(seen, line); strings.Contains(line, text) {
				return line
			}
		case <-timeout:
			t.Fatalf("no log line with %q within %v; it said:\n%s", text, patience, strings.Join(seen, "\n"))
		}
	}
}

// end sends a signal and waits for the end.
func (p *process) end(t *testing.T, signal syscall.Signal) (code int) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("%v did not end the process within %v", signal, patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

// shop is a database file of an application.
type shop struct {
	path string
	db   *sql.DB
}

func newShop(t *testing.T) shop {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.db")
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(path)+"?_txlock=immediate&_busy_timeout=10000&_journal_mode=WAL")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return shop{path: path, db: db}
}

func (s shop) url() string { return "sqlite://" + filepath.ToSlash(s.path) }

// insert writes events by plain SQL, as another language would: n of them, spread over some aggregates.
func (s shop) insert(t *testing.T, n, aggregates int) {
	t.Helper()
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	for i := range n {
		if _, err := tx.ExecContext(t.Context(),
			`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', ?, 'order.changed', ?)`,
			fmt.Sprintf("ord_%d", i%aggregates), fmt.Sprintf(`{"number":%d}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// pending counts the events that are not published.
func (s shop) pending(t *testing.T) (n int) {
	t.Helper()
	if err := s.db.QueryRowContext(t.Context(), `SELECT count(*) FROM outbox WHERE published_at IS NULL`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
