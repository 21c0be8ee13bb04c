// Package cli is the command line of the outbox program.
//
// Data goes to standard output, everything else to standard error: text on a terminal, JSON lines otherwise.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Exit codes.
const (
	exitOK          = 0
	exitError       = 1   // something failed
	exitUsage       = 2   // wrong flags, arguments or settings
	exitCheck       = 3   // a check says no: migrations are pending, a key is not blocked
	exitInterrupted = 130 // a second signal cut the run short
)

// The environment variables that stand in for flags.
const (
	envStore  = "OUTBOX_STORE"
	envBroker = "OUTBOX_BROKER"
)

var (
	errUsage       = errors.New("see --help")
	errCheck       = errors.New("check failed")
	errInterrupted = errors.New("interrupted: what was in flight is published again by the next run")
)

// program is what the commands share.
type program struct {
	in     io.Reader
	out    io.Writer
	errOut io.Writer
	log    *slog.Logger
}

// Main runs the program and returns its exit code.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	p := &program{in: in, out: out, errOut: errOut, log: newLogger(errOut)}
	root := p.root()
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if err != nil && !errors.Is(err, errCheck) {
		p.notef("outbox: %v\n", err)
	}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errCheck):
		return exitCheck
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	default:
		return exitError
	}
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "outbox",
		Short: "Carries events from an outbox table to a message broker",
		Long: "Outbox carries events from an outbox table to a message broker: at least once, in order per aggregate.\n\n" +
			"Exit codes: 0 all is well, 1 something failed, 2 wrong flags or settings, 3 a check says no,\n" +
			"130 a second signal cut the run short.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(errors.New("unknown command; known are config, dead, keys, migrate, run, strategy and version"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.errOut)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.AddCommand(p.runCommand(), p.migrateCommand(), p.deadCommand(), p.keysCommand(), p.strategyCommand(), p.configCommand(), p.versionCommand())
	return root
}

// printf writes data to standard output, notef remarks to standard error. When nobody reads them any more there is
// nobody to tell.
func (p *program) printf(format string, args ...any) { _, _ = fmt.Fprintf(p.out, format, args...) }

func (p *program) notef(format string, args ...any) { _, _ = fmt.Fprintf(p.errOut, format, args...) }

// usage marks an error as one of the user's, which ends in exit code 2.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w\n%w", err, errUsage)
}

// noArguments refuses arguments without repeating them: someone may have put a URL with a password there.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(fmt.Errorf("%s takes no arguments, only flags", cmd.CommandPath()))
	}
	return nil
}

func newLogger(w io.Writer) *slog.Logger {
	if isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, nil))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: readable}))
}

// readable writes durations as "1.5s" in JSON too.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
