package rabbitmq_test

import (
	"encoding/binary"
	"io"
	"math"
	"net"
	"sync"
	"testing"
)

// proxy stands between clients and the server and knows enough of AMQP to misroute a message or to lose a confirm. It
// carries whole frames, so that nothing that it swallowed arrives in part.
type proxy struct {
	address  string // where it listens
	upstream string

	mu       sync.Mutex
	listener net.Listener
	links    map[*proxyLink]bool
	hanging  bool
	caught   chan struct{}
	lose     int           // confirms to lose
	refuse   int           // messages to have refused
	pick     int           // this one, counted from now, is refused; less than 0 is none
	keep     chan struct{} // the next cut leaves the server's side open until this is closed; may be nil

	running sync.WaitGroup
}

// proxyLink is one connection through a proxy.
type proxyLink struct {
	client, server net.Conn
	held           [][]byte      // what a hanging network swallowed
	keep           chan struct{} // the server's side stays open until this is closed; may be nil
}

// refusedKey is the routing key of messages that are to be refused: the queue bound with it is always full.
const refusedKey = "refused"

// The methods that the proxy knows, as class<<16 | method.
const (
	basicPublish = 60<<16 | 40
	basicAck     = 60<<16 | 80
	basicNack    = 60<<16 | 120
)

func startProxy(t testing.TB, upstream string) *proxy {
	t.Helper()
	p := &proxy{address: "127.0.0.1:0", upstream: upstream, links: map[*proxyLink]bool{}, pick: -1}
	if err := p.up(); err != nil {
		t.Fatalf("start a proxy: %v", err)
	}
	t.Cleanup(func() {
		p.down()
		p.running.Wait()
	})
	return p
}

// up listens, at the same address each time.
func (p *proxy) up() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", p.address) //nolint:noctx // a test
	if err != nil {
		return err
	}
	p.listener, p.address = l, l.Addr().String()
	p.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.connect(client)
		}
	})
	return nil
}

// down refuses connections and cuts those that are there.
func (p *proxy) down() {
	p.mu.Lock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.cut()
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.keep = p.keep
		_ = l.client.Close() // the rest follows
	}
	p.keep = nil
}

func (p *proxy) connect(client net.Conn) {
	server, err := net.Dial("tcp", p.upstream) //nolint:noctx // a test
	if err != nil {
		_ = client.Close()
		return
	}
	l := &proxyLink{client: client, server: server}
	p.mu.Lock()
	if p.listener == nil { // gone down meanwhile
		_ = client.Close()
	}
	p.links[l] = true
	p.mu.Unlock()
	p.running.Go(func() { p.requests(l) })
	p.running.Go(func() {
		p.answers(l)
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	})
}

func (p *proxy) close(l *proxyLink) {
	_ = l.client.Close()
	p.mu.Lock()
	keep := l.keep
	p.mu.Unlock()
	if keep != nil {
		<-keep
	}
	_ = l.server.Close()
}

// requests carries what the client sends.
func (p *proxy) requests(l *proxyLink) {
	defer p.close(l)
	greeting := make([]byte, 8) // "AMQP" and a version
	if _, err := io.ReadFull(l.client, greeting); err != nil || !p.handle(l, greeting) {
		return
	}
	for {
		frame, err := readFrame(l.client)
		if err != nil || !p.handle(l, frame) {
			return
		}
	}
}

// handle passes a frame on, or holds it. It returns false when the connection is of no use any more.
func (p *proxy) handle(l *proxyLink, frame []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hanging {
		l.held = append(l.held, frame)
		select {
		case p.caught <- struct{}{}:
		default:
		}
		return true
	}
	if methodOf(frame) == basicPublish && p.refuses() {
		frame = misroute(frame)
	}
	_, err := l.server.Write(frame)
	return err == nil
}

// refuses says whether the next message is to be refused.
func (p *proxy) refuses() bool {
	picked := p.pick == 0
	if p.pick >= 0 {
		p.pick--
	}
	if p.refuse == 0 {
		return picked
	}
	p.refuse--
	return true
}

// answers carries what the server sends.
func (p *proxy) answers(l *proxyLink) {
	defer p.close(l)
	for {
		frame, err := readFrame(l.server)
		if err != nil {
			return
		}
		p.mu.Lock()
		method := methodOf(frame)
		lose := p.lose > 0 && (method == basicAck || method == basicNack)
		if lose {
			p.lose--
		}
		p.mu.Unlock()
		if lose {
			return
		}
		if _, err := l.client.Write(frame); err != nil {
			return
		}
	}
}

// set changes what goes wrong.
func (p *proxy) set(change func(*proxy)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// hang swallows what clients send until release. Caught gets a value when it has.
func (p *proxy) hang() (caught <-chan struct{}, release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hanging, p.caught = true, make(chan struct{}, 1)
	return p.caught, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hanging = false
		for l := range p.links {
			for _, frame := range l.held {
				_, _ = l.server.Write(frame)
			}
			l.held = nil
		}
	}
}

// readFrame reads one frame: type, channel, size, payload, end.
func readFrame(r io.Reader) ([]byte, error) {
	frame := make([]byte, 7)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(frame[3:])
	if size > math.MaxInt32 {
		return nil, io.ErrUnexpectedEOF
	}
	frame = append(frame, make([]byte, size+1)...)
	_, err := io.ReadFull(r, frame[7:])
	return frame, err
}

// methodOf returns the method of a frame, or 0.
func methodOf(frame []byte) uint32 {
	if len(frame) < 12 || frame[0] != 1 {
		return 0
	}
	return binary.BigEndian.Uint32(frame[7:])&0xFFFF0000 | uint32(binary.BigEndian.Uint16(frame[9:]))
}

// misroute gives a basic.publish the routing key of the queue that is always full.
func misroute(frame []byte) []byte {
	payload := frame[7 : len(frame)-1]
	exchangeEnd := 7 + int(payload[6]) // after class, method, reserved and the length
	flags := payload[len(payload)-1]
	changed := append([]byte{}, payload[:exchangeEnd]...)
	changed = append(changed, byte(len(refusedKey)))
	changed = append(changed, refusedKey...)
	changed = append(changed, flags)
	out := append([]byte{}, frame[:3]...)
	out = binary.BigEndian.AppendUint32(out, uint32(len(changed)))
	out = append(out, changed...)
	return append(out, frame[len(frame)-1])
}

// keepUpstream lets a cut leave the server's side of connections open, as when packets get lost, until it is released.
func (p *proxy) keepUpstream() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	released := make(chan struct{})
	p.keep = released
	return sync.OnceFunc(func() { close(released) })
}
