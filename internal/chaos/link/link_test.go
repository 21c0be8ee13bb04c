package link_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-outbox/outbox/internal/chaos/link"
)

// echo is a server that sends every line back, and says when it has got one.
func echo(t *testing.T) (address string, got <-chan string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close() //nolint:errcheck // the other side has gone
				for in := bufio.NewReader(conn); ; {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					lines <- line
					if _, err := io.WriteString(conn, line); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return l.Addr().String(), lines
}

// client is a connection through a link.
type client struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func connect(t *testing.T, l *link.Link) *client {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{t: t, Conn: conn, in: bufio.NewReader(conn)}
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c, line); err != nil {
		c.t.Fatal(err)
	}
}

// receive waits for a line; how long says how patient.
func (c *client) receive(patience time.Duration) (string, error) {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		c.t.Fatal(err)
	}
	return c.in.ReadString('\n')
}

func (c *client) wantEcho(line string) {
	c.t.Helper()
	c.send(line)
	if got, err := c.receive(20 * time.Second); got != line || err != nil {
		c.t.Errorf("got %q, %v; want the echo of %q", got, err, line)
	}
}

func (c *client) wantSilence() {
	c.t.Helper()
	if got, err := c.receive(200 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("got %q, %v; want nothing at all", got, err)
	}
}

func (c *client) wantClosed() {
	c.t.Helper()
	if got, err := c.receive(20 * time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("got %q, %v; want a lost connection", got, err)
	}
}

// wantRefused wants a new connection to be of no use, as early as while it is made or as late as when it is read.
func wantRefused(t *testing.T, l *link.Link) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Address())
	if err != nil {
		return
	}
	defer conn.Close() //nolint:errcheck // it is lost
	(&client{t: t, Conn: conn, in: bufio.NewReader(conn)}).wantClosed()
}

func newLink(t *testing.T) (*link.Link, <-chan string) {
	t.Helper()
	address, got := echo(t)
	l, err := link.New("test", "127.0.0.1:0", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l, got
}

func TestCutAndDown(t *testing.T) {
	t.Parallel()
	l, _ := newLink(t)
	c := connect(t, l)
	c.wantEcho("one\n")
	l.Cut()
	c.wantClosed()
	c = connect(t, l)
	c.wantEcho("two\n")
	l.Down()
	c.wantClosed()
	for range 2 {
		wantRefused(t, l) // and the port is held: nobody else can take it meanwhile
	}
	l.Up()
	l.Up()
	connect(t, l).wantEcho("three\n")
}

func TestNothingBringsABlockedLinkUp(t *testing.T) {
	t.Parallel()
	l, _ := newLink(t)
	c := connect(t, l)
	c.wantEcho("one\n")
	l.Block()
	c.wantClosed()
	l.Up()
	l.Cut()
	l.Hole()
	l.Heal()
	wantRefused(t, l)
	l.Unblock()
	connect(t, l).wantEcho("two\n")
}

func TestHoleIsSilentInBothDirections(t *testing.T) {
	t.Parallel()
	l, got := newLink(t)
	old := connect(t, l)
	old.wantEcho("one\n")
	<-got
	l.Hole()
	for _, c := range []*client{old, connect(t, l)} {
		c.send("two\n")
		c.wantSilence()
	}
	l.Heal()
	old.wantClosed()
	connect(t, l).wantEcho("three\n")
	if line := <-got; line != "three\n" {
		t.Errorf("the server has got %q through a hole", line)
	}
}

func TestMuteLosesAnswersAlone(t *testing.T) {
	t.Parallel()
	l, got := newLink(t)
	c := connect(t, l)
	l.Mute()
	c.send("one\n")
	if line := <-got; line != "one\n" {
		t.Errorf("the server has got %q", line)
	}
	c.wantSilence()
	l.Heal()
	connect(t, l).wantEcho("two\n")
}

func TestSlowLosesNothing(t *testing.T) {
	t.Parallel()
	l, _ := newLink(t)
	l.Slow(20*time.Millisecond, 100_000)
	c := connect(t, l)
	for _, line := range []string{"one\n", "two\n", "three\n"} {
		c.wantEcho(line)
	}
}

// A link can be healed whatever is on its way through it, again and again.
func TestHealEndsWithTrafficUnderWay(t *testing.T) {
	t.Parallel()
	l, got := newLink(t)
	var reading sync.WaitGroup
	stop := make(chan struct{})
	reading.Go(func() {
		for {
			select {
			case <-got:
			case <-stop:
				return
			}
		}
	})
	defer reading.Wait()
	defer close(stop)
	line := strings.Repeat("x", 2000) + "\n"
	for range 20 {
		var talking sync.WaitGroup
		for range 4 {
			c := connect(t, l)
			c.wantEcho("through\n")
			talking.Go(func() { // until the link is healed
				talking.Go(func() { _, _ = io.Copy(io.Discard, c) })
				for {
					if _, err := io.WriteString(c, line); err != nil {
						return
					}
				}
			})
		}
		l.Slow(10*time.Millisecond, 2_000_000)
		l.Heal()
		talking.Wait()
	}
}
