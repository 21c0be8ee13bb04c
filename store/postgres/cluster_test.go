package postgres_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// cluster is a PostgreSQL server of a test's own, for what cannot be done to a shared one: other settings, a crash, a
// standby that takes over.
type cluster struct {
	t    testing.TB
	bin  string
	dir  string
	port int
}

// newCluster starts a server with the settings; without the server's programs the test is skipped.
func newCluster(t testing.TB, settings ...string) *cluster {
	t.Helper()
	serverURL(t)
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		t.Skip("no initdb in /usr/lib/postgresql")
	}
	slices.Sort(found)
	c := &cluster{t: t, bin: filepath.Dir(found[len(found)-1])}
	c.dir = filepath.Join(c.parent(), "data")
	c.run("initdb", "-D", c.dir, "-A", "trust", "-U", "postgres", "--no-sync", "--locale=C.UTF-8", "--encoding=UTF8")
	c.start(settings...)
	return c
}

// parent makes a directory that the server's user can reach.
func (c *cluster) parent() string {
	c.t.Helper()
	dir, err := os.MkdirTemp("/tmp", "outbox-pg-")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		if out, err := exec.CommandContext(c.t.Context(), "chown", "postgres", dir).CombinedOutput(); err != nil {
			c.t.Skipf("chown: %v\n%s", err, out)
		}
	}
	return dir
}

func (c *cluster) run(program string, args ...string) {
	c.t.Helper()
	if out, err := c.command(program, args...).CombinedOutput(); err != nil {
		c.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

func (c *cluster) command(program string, args ...string) *exec.Cmd {
	args = append([]string{filepath.Join(c.bin, program)}, args...)
	if os.Geteuid() == 0 { // the server refuses to run as root
		args = append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"}, args...)
	}
	cmd := exec.CommandContext(context.WithoutCancel(c.t.Context()), args[0], args[1:]...)
	cmd.Dir = "/tmp"
	return cmd
}

func (c *cluster) start(settings ...string) {
	c.t.Helper()
	if c.port == 0 {
		c.port = freePort(c.t)
	}
	options := fmt.Sprintf("-c port=%d -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off", c.port)
	for _, s := range settings {
		options += " -c " + s
	}
	c.run("pg_ctl", "-D", c.dir, "-o", options, "-l", filepath.Join(c.dir, "log"), "-w", "-t", "60", "start")
	c.t.Cleanup(func() { c.stop("immediate") })
}

// stop ends the server: "fast", or "immediate" as a crash does. Stopped already is fine.
func (c *cluster) stop(mode string) {
	_ = c.command("pg_ctl", "-D", c.dir, "-m", mode, "-w", "-t", "60", "stop").Run()
}

func (c *cluster) url() string {
	return "postgres://postgres@127.0.0.1:" + strconv.Itoa(c.port) + "/postgres?sslmode=disable"
}

// copyTo copies a stopped server, as a backup does, to one that can be started at the same port.
func (c *cluster) copyTo() *cluster {
	c.t.Helper()
	other := &cluster{t: c.t, bin: c.bin, port: c.port}
	other.dir = filepath.Join(other.parent(), "data")
	cmd := exec.CommandContext(c.t.Context(), "cp", "-a", c.dir, other.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("cp: %v\n%s", err, out)
	}
	return other
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := strings.Cut(l.Addr().String(), ":")
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// connect makes a plain connection, as psql does.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
