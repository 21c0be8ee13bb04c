package rabbitmq

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
)

// pipe is a gatherer whose other end is in our hands: a write waits until it is read.
func pipe(t *testing.T) (g *gatherer, far net.Conn, tasks *sync.WaitGroup) {
	t.Helper()
	near, far := net.Pipe()
	tasks = &sync.WaitGroup{}
	return gather(near, tasks), far, tasks
}

func TestGatherer_OneWriteForWhatCameMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, far, tasks := pipe(t)
		write := func(text string) {
			if n, err := g.Write([]byte(text)); n != len(text) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		write("first")
		synctest.Wait() // it is under way
		write("second")
		write("third")
		in := make([]byte, 100)
		for _, want := range []string{"first", "secondthird"} {
			n, err := far.Read(in)
			if got := string(in[:n]); got != want || err != nil {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		tasks.Wait()
		if _, err := g.Write([]byte("late")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a write after the end: %v", err)
		}
	})
}

func TestGatherer_LosesNothingAndKeepsTheOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, far, tasks := pipe(t)
		var want bytes.Buffer
		piece := make([]byte, 0, 3000)
		tasks.Go(func() {
			for i := range 200 {
				piece = append(piece[:0], bytes.Repeat([]byte{byte(i)}, 1+i*13%3000)...)
				want.Write(piece)
				if _, err := g.Write(piece); err != nil {
					t.Error(err)
				}
				clear(piece) // ours again
			}
		})
		var got bytes.Buffer
		tasks.Go(func() {
			_, _ = io.Copy(&got, far) // until the end
		})
		synctest.Wait()
		_ = g.Close()
		tasks.Wait()
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("got %d bytes, want %d", got.Len(), want.Len())
		}
	})
}

func TestGatherer_WaitsForAServerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _, tasks := pipe(t)
		written, ended := 0, make(chan error, 1)
		tasks.Go(func() {
			for {
				n, err := g.Write(make([]byte, 10_000))
				if err != nil {
					ended <- err
					return
				}
				written += n
			}
		})
		synctest.Wait()
		if written < gatherLimit || written > 3*gatherLimit { // those under way too
			t.Errorf("%d bytes wait", written)
		}
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
		_ = g.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		tasks.Wait()
	})
}

func TestGatherer_AFailedWriteEndsTheConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, far, tasks := pipe(t)
		_ = far.Close()
		if _, err := g.Write([]byte("lost")); err != nil {
			t.Fatal(err)
		}
		tasks.Wait()
		if _, err := g.Write([]byte("more")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the next write: %v", err)
		}
		if _, err := g.Read(make([]byte, 1)); err == nil {
			t.Error("the reader has not learnt of it")
		}
	})
}
