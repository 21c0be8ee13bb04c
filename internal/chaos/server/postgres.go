package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/internal/chaos/process"
)

// Postgres is a PostgreSQL server.
type Postgres struct {
	bin, dir, log string
	port          int
	server        *process.Process
}

// NewPostgres makes an empty database in a folder. Start starts it.
func NewPostgres(ctx context.Context, dir string, free *Ports) (*Postgres, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return nil, errors.New("no initdb in /usr/lib/postgresql; `scripts/services up postgres` installs it")
	}
	slices.Sort(found)
	ports, err := free.take(ctx, 1)
	if err != nil {
		return nil, err
	}
	p := &Postgres{
		bin: filepath.Dir(found[len(found)-1]), dir: filepath.Join(dir, "postgres"), port: ports[0],
		log: filepath.Join(dir, "postgres.log"),
	}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 { // the server refuses to run as root
		if out, err := exec.CommandContext(ctx, "chown", "postgres", p.dir).CombinedOutput(); err != nil { //nolint:gosec // our own folder
			return nil, fmt.Errorf("chown: %w\n%s", err, out)
		}
	}
	return p, process.Run(ctx, p.program("initdb", "-D", p.dir, "-A", "trust", "-U", "postgres", "--no-sync",
		"--locale=C.UTF-8", "--encoding=UTF8"))
}

func (p *Postgres) program(name string, args ...string) process.Program {
	program := process.Program{Name: "postgres", Path: filepath.Join(p.bin, name), Args: args, Log: p.log}
	if os.Geteuid() == 0 {
		program.Args = append([]string{"--reuid=postgres", "--regid=postgres", "--clear-groups", "--", program.Path}, args...)
		program.Path = "setpriv"
	}
	return program
}

// Start starts it and waits until it answers.
func (p *Postgres) Start(ctx context.Context) (err error) {
	// Without fsync a killed server loses nothing: the kernel has what it wrote.
	p.server, err = process.Start(ctx, p.program("postgres", "-D", p.dir, "-p", strconv.Itoa(p.port), "-h", "127.0.0.1", "-k", "",
		"-c", "fsync=off", "-c", "max_connections=200", "-c", "max_prepared_transactions=0"))
	if err != nil {
		return err
	}
	return until(ctx, "postgres", p.server.Done(), func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, p.URL(p.Address()))
		if err != nil {
			return err
		}
		return errors.Join(conn.Ping(ctx), conn.Close(ctx))
	})
}

// Restart ends the server, waits, starts it again, and waits until it answers. A crash is what `pg_ctl stop -m immediate`
// does: no connection is told anything, and the server recovers from its log. Otherwise it is `-m fast`.
func (p *Postgres) Restart(ctx context.Context, crash bool, wait time.Duration) error {
	signal := syscall.SIGINT
	if crash {
		signal = syscall.SIGQUIT
	}
	if err := p.server.End(signal, 30*time.Second); err != nil {
		return err
	}
	pause(ctx, wait)
	return p.Start(ctx)
}

// Stop ends it.
func (p *Postgres) Stop() {
	if p.server != nil {
		_ = p.server.End(syscall.SIGQUIT, 10*time.Second) // its files are not needed any more
	}
}

// Address is where it listens.
func (p *Postgres) Address() string { return address(p.port) }

// URL is the URL of its database for a client of the address, which may be that of a link.
func (p *Postgres) URL(address string) string {
	return "postgres://postgres@" + address + "/postgres?sslmode=disable"
}
