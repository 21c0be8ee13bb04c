// Package cluster runs a PostgreSQL server for as long as a scenario needs one with other settings than the shared one.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// Cluster is a running server with an empty database "postgres". Durable as by default: it syncs every commit.
type Cluster struct {
	bin, dir string
	port     int
}

// Start makes a server with the settings, each as "name=value", on a free port of 127.0.0.1. Stop ends and removes it.
func Start(ctx context.Context, settings ...string) (*Cluster, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return nil, errors.New("cluster: no initdb in /usr/lib/postgresql: install PostgreSQL's server")
	}
	slices.Sort(found)
	dir, err := os.MkdirTemp("/tmp", "outbox-bench-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{bin: filepath.Dir(found[len(found)-1]), dir: dir}
	if err := c.start(ctx, settings); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, settings []string) (err error) {
	if os.Geteuid() == 0 { // the server refuses to run as root
		if out, err := exec.CommandContext(ctx, "chown", "postgres", c.dir).CombinedOutput(); err != nil {
			return fmt.Errorf("cluster: chown: %w\n%s", err, out)
		}
	}
	if err := c.run(ctx, "initdb", "-D", c.data(), "-A", "trust", "-U", "postgres", "--no-sync", "--locale=C.UTF-8",
		"--encoding=UTF8"); err != nil {
		return err
	}
	if c.port, err = freePort(ctx); err != nil {
		return err
	}
	options := fmt.Sprintf("-c port=%d -c listen_addresses=127.0.0.1 -c unix_socket_directories=", c.port)
	for _, s := range settings {
		options += " -c " + s
	}
	log := filepath.Join(c.dir, "log")
	return c.run(ctx, "pg_ctl", "-D", c.data(), "-o", options, "-l", log, "-w", "-t", "60", "start")
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

// URL is the address of its database.
func (c *Cluster) URL() string {
	return "postgres://postgres@127.0.0.1:" + strconv.Itoa(c.port) + "/postgres?sslmode=disable"
}

// Stop ends the server and removes its files.
func (c *Cluster) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := c.run(ctx, "pg_ctl", "-D", c.data(), "-m", "immediate", "-w", "stop")
	return errors.Join(err, os.RemoveAll(c.dir))
}

func (c *Cluster) run(ctx context.Context, program string, args ...string) error {
	args = append([]string{filepath.Join(c.bin, program)}, args...)
	if os.Geteuid() == 0 {
		args = append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // PostgreSQL's own programs
	cmd.Dir = c.dir
	// The server inherits what its starter has open: a pipe would never end.
	log, err := os.CreateTemp("", "outbox-bench-")
	if err != nil {
		return err
	}
	defer os.Remove(log.Name()) //nolint:errcheck // a leftover of some bytes
	defer log.Close()           //nolint:errcheck // only read from here
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("cluster: %s: %w\n%s", program, err, text)
	}
	return nil
}

func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close() //nolint:errcheck // nobody has connected
	address, err := netip.ParseAddrPort(l.Addr().String())
	return int(address.Port()), err
}
