package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-outbox/outbox/internal/chaos/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := chaos(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// chaos is the program: it returns the exit code.
func chaos(ctx context.Context, args []string, out, errOut io.Writer) int {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(errOut)
	duration := flags.Duration("duration", 3*time.Minute, "how long faults happen, for each broker")
	broker := flags.String("broker", "all", "one of "+strings.Join(server.Names(), ", ")+", or all")
	seed := flags.Uint64("seed", 0, "what decides about the faults; 0 takes one from the clock")
	keep := flags.Bool("keep", false, "keep the logs of a run without a fault too")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	brokers := []string{*broker}
	if *broker == "all" {
		brokers = server.Names()
	}
	if !slices.Contains(server.Names(), brokers[0]) || flags.NArg() > 0 || *duration <= 0 {
		flags.Usage()
		return 2
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	kept, err := runAll(ctx, brokers, options{duration: *duration, seed: *seed}, *keep, out)
	if err != nil {
		_, _ = fmt.Fprintln(errOut, "chaos:", err)
	}
	if err != nil || !kept {
		return 1
	}
	return 0
}

// runAll runs one broker after the other and says whether all promises were kept.
func runAll(ctx context.Context, brokers []string, o options, keep bool, out io.Writer) (kept bool, err error) {
	root, err := workFolder()
	if err != nil {
		return false, err
	}
	defer func() {
		if kept && err == nil && !keep || errors.Is(err, context.Canceled) {
			err = errors.Join(err, os.RemoveAll(root))
			return
		}
		_, _ = fmt.Fprintf(out, "logs are kept in %s\n", root)
	}()
	if o.binary, err = build(ctx, root); err != nil {
		return false, err
	}
	var lines []string
	kept = true
	for _, broker := range brokers {
		o.broker, o.dir = broker, filepath.Join(root, broker)
		_, _ = fmt.Fprintf(out, "%s: %v of faults, seed %d\n", o.broker, o.duration, o.seed)
		if err := os.Mkdir(o.dir, 0o755); err != nil { //nolint:gosec // the database's user has to reach its folder
			return false, err
		}
		r, err := run(ctx, o)
		if err != nil {
			return false, fmt.Errorf("%s: %w", broker, err)
		}
		if err := os.WriteFile(filepath.Join(o.dir, "findings.txt"), []byte(r.details()), 0o600); err != nil {
			return false, err
		}
		if !r.kept() {
			kept = false
			_, _ = fmt.Fprint(out, firstLines(r.details(), 30))
		}
		_, _ = fmt.Fprintln(out, r)
		lines = append(lines, r.String())
	}
	if len(lines) > 1 { // together, where they are easily found
		_, _ = fmt.Fprintln(out, strings.Join(lines, "\n"))
	}
	return kept, nil
}

func firstLines(text string, n int) string {
	lines := strings.SplitAfterN(text, "\n", n+1)
	if len(lines) > n && lines[n] != "" {
		lines[n] = "...\n"
	}
	return strings.Join(lines, "")
}

// workFolder makes a folder that the database's user can reach, too.
func workFolder() (string, error) {
	dir, err := os.MkdirTemp("", "outbox-chaos-*")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755) //nolint:gosec // see above
}

// build builds the program under test.
func build(ctx context.Context, dir string) (binary string, err error) {
	binary = filepath.Join(dir, "outbox")
	//nolint:gosec // into a folder of our own
	out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/go-outbox/outbox/cmd/outbox").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binary, nil
}
