package rabbitmq_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/go-outbox/outbox/broker/rabbitmq"
)

// fake is a server that knows just enough of AMQP to be published to, and does what a real one cannot be made to do on
// demand. By default it confirms everything at once.
type fake struct {
	address  string
	frameMax uint32
	// publish answers a message. It is called by the goroutine that reads the connection, which waits for it.
	publish func(c *fakeConn, m fakeMessage)
	// closing is called when a client ends a channel that has carried messages, and answers in its own time. Nil answers
	// at once.
	closing func(c *fakeConn, channel uint16, answer func())

	mu      sync.Mutex
	stored  []fakeMessage
	opened  int // connections
	conns   map[*fakeConn]bool
	running sync.WaitGroup
}

// fakeConn is one connection to a fake.
type fakeConn struct {
	*fake
	conn net.Conn

	mu   sync.Mutex // of writing
	tags map[uint16]uint64
}

// fakeMessage is a message as the fake got it.
type fakeMessage struct {
	channel         uint16
	tag             uint64
	exchange, token string
	header          []byte // class, weight, size, flags and properties
	body            []byte
}

func startFake(t testing.TB, f *fake) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	f.address, f.conns = l.Addr().String(), map[*fakeConn]bool{}
	if f.frameMax == 0 {
		f.frameMax = rabbitmq.DefaultFrameMax
	}
	if f.publish == nil {
		f.publish = func(c *fakeConn, m fakeMessage) { c.ack(m) }
	}
	f.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c := &fakeConn{fake: f, conn: conn, tags: map[uint16]uint64{}}
			f.mu.Lock()
			f.opened++
			f.conns[c] = true
			f.mu.Unlock()
			f.running.Go(c.serve)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		f.mu.Lock()
		for c := range f.conns {
			_ = c.conn.Close()
		}
		f.mu.Unlock()
		f.running.Wait()
	})
	return f
}

func (f *fake) config() rabbitmq.Config {
	return rabbitmq.Config{Addresses: []string{f.address}, Logger: slog.New(slog.DiscardHandler)}
}

// store keeps a message, as a queue would.
func (f *fake) store(m fakeMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stored = append(f.stored, m)
}

// connections counts those that were made.
func (f *fake) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened
}

func (f *fake) bodies() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	bodies := make([]string, len(f.stored))
	for i, m := range f.stored {
		bodies[i] = string(m.body)
	}
	return bodies
}

func (c *fakeConn) serve() {
	defer func() {
		_ = c.conn.Close()
		c.fake.mu.Lock()
		delete(c.conns, c)
		c.fake.mu.Unlock()
	}()
	r := bufio.NewReader(c.conn)
	if _, err := io.ReadFull(r, make([]byte, 8)); err != nil {
		return
	}
	c.method(0, 10, 10, []byte{0, 9}, longstr(""), longstr("PLAIN"), longstr("en_US"))
	var m fakeMessage
	for {
		frame, err := readFrame(r)
		if err != nil {
			return
		}
		channel, payload := binary.BigEndian.Uint16(frame[1:]), frame[7:len(frame)-1]
		switch frame[0] {
		case 1:
			if !c.answer(channel, payload, &m) {
				return
			}
			continue
		case 2:
			m.header, m.body = payload, nil
		case 3:
			m.body = append(m.body, payload...)
		default: // a heartbeat
			continue
		}
		if uint64(len(m.body)) == binary.BigEndian.Uint64(m.header[4:]) {
			if _, open := c.tags[m.channel]; !open {
				continue // on its way when the channel was closed
			}
			c.tags[m.channel]++
			m.tag = c.tags[m.channel]
			c.publish(c, m)
		}
	}
}

// answer answers a method. It returns false when the connection ends with it.
func (c *fakeConn) answer(channel uint16, payload []byte, m *fakeMessage) bool {
	class, method := binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:])
	switch uint32(class)<<16 | uint32(method) {
	case 10<<16 | 11: // start-ok
		tune := binary.BigEndian.AppendUint16(nil, 100)
		tune = binary.BigEndian.AppendUint32(tune, c.frameMax)
		c.method(0, 10, 30, binary.BigEndian.AppendUint16(tune, 60))
	case 10<<16 | 40: // open
		c.method(0, 10, 41, shortstr(""))
	case 10<<16 | 50: // close
		c.method(0, 10, 51)
		return false
	case 20<<16 | 10: // channel.open
		c.tags[channel] = 0
		c.method(channel, 20, 11, longstr(""))
	case 20<<16 | 40: // channel.close
		messages := c.tags[channel]
		delete(c.tags, channel)
		answer := func() { c.method(channel, 20, 41) }
		if c.closing == nil || messages == 0 {
			answer()
		} else {
			c.closing(c, channel, answer)
		}
	case 40<<16 | 10: // exchange.declare
		c.method(channel, 40, 11)
	case 50<<16 | 10: // queue.declare
		c.method(channel, 50, 11, shortstr(""), make([]byte, 8))
	case 85<<16 | 10: // confirm.select
		c.method(channel, 85, 11)
	case basicPublish:
		exchange := payload[7 : 7+payload[6]]
		token := payload[8+payload[6]:]
		*m = fakeMessage{channel: channel, exchange: string(exchange), token: string(token[:len(token)-1])}
	}
	return true
}

func (c *fakeConn) ack(m fakeMessage)     { c.confirm(m, 80, 0) }
func (c *fakeConn) ackUpTo(m fakeMessage) { c.confirm(m, 80, 1) }

func (c *fakeConn) confirm(m fakeMessage, method uint16, flags byte) {
	c.method(m.channel, 60, method, binary.BigEndian.AppendUint64(nil, m.tag), []byte{flags})
}

// giveBack returns a message as unroutable.
func (c *fakeConn) giveBack(m fakeMessage) {
	c.method(m.channel, 60, 50, binary.BigEndian.AppendUint16(nil, 312), shortstr("NO_ROUTE"),
		shortstr(m.exchange), shortstr(m.token))
	c.frame(2, m.channel, m.header)
	c.frame(3, m.channel, m.body)
}

// closeChannel ends a channel with an error.
func (c *fakeConn) closeChannel(channel, code uint16, text string) {
	delete(c.tags, channel)
	c.method(channel, 20, 40, binary.BigEndian.AppendUint16(nil, code), shortstr(text), make([]byte, 4))
}

func (c *fakeConn) block(reason string) { c.method(0, 10, 60, shortstr(reason)) }
func (c *fakeConn) unblock()            { c.method(0, 10, 61) }

func (c *fakeConn) method(channel, class, method uint16, arguments ...[]byte) {
	payload := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, class), method)
	for _, a := range arguments {
		payload = append(payload, a...)
	}
	c.frame(1, channel, payload)
}

func (c *fakeConn) frame(kind byte, channel uint16, payload []byte) {
	out := binary.BigEndian.AppendUint16([]byte{kind}, channel)
	out = binary.BigEndian.AppendUint32(out, uint32(len(payload)))
	out = append(append(out, payload...), 0xCE)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.conn.Write(out)
}

func shortstr(s string) []byte { return append([]byte{byte(len(s))}, s...) }

func longstr(s string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...)
}
