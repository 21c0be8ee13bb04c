package kafka_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// proxy stands between clients and one broker and knows enough of the protocol to lose the answer to a publish request
// or to give one of its own. It carries whole messages, so that nothing that it swallowed arrives in part.
type proxy struct {
	address  string // where it listens
	upstream string
	network  *network

	mu       sync.Mutex
	listener net.Listener
	links    map[*link]bool
	running  sync.WaitGroup
}

// network is the state that the proxies of one cluster share.
type network struct {
	mu      sync.Mutex
	hanging bool
	caught  chan struct{}
	refuse  int    // publish requests to refuse
	lose    int    // answers to publish requests to lose
	code    int16  // what refused requests are answered with
	only    *proxy // where the network hangs; nil means everywhere
}

// link is one connection through a proxy.
type link struct {
	client, server net.Conn

	mu      sync.Mutex
	held    [][]byte // what a hanging network swallowed
	publish map[int32]bool
}

func startProxy(t testing.TB, address, upstream string, n *network) *proxy {
	t.Helper()
	p := &proxy{address: address, upstream: upstream, network: n, links: map[*link]bool{}}
	if err := p.up(); err != nil {
		t.Fatalf("start a proxy at %s: %v", address, err)
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
		l.close()
	}
}

func (p *proxy) connect(client net.Conn) {
	server, err := net.Dial("tcp", p.upstream) //nolint:noctx // a test
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server, publish: map[int32]bool{}}
	p.mu.Lock()
	if p.listener == nil { // gone down meanwhile
		l.close()
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

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// requests carries what the client sends.
func (p *proxy) requests(l *link) {
	defer l.close()
	for {
		frame, err := readFrame(l.client)
		if err != nil {
			return
		}
		if !p.network.handle(p, l, frame) {
			return
		}
	}
}

// handle passes a request on, holds it or answers it. It returns false when the link is of no use any more.
func (n *network) handle(p *proxy, l *link, frame []byte) bool {
	publish := int16(binary.BigEndian.Uint16(frame[4:])) == int16(kmsg.Produce)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.hanging && (n.only == nil || n.only == p):
		l.mu.Lock()
		l.held = append(l.held, frame)
		l.mu.Unlock()
		select {
		case n.caught <- struct{}{}:
		default:
		}
		return true
	case publish && n.refuse > 0:
		n.refuse--
		_, err := l.client.Write(refusalOf(frame, n.code))
		return err == nil
	case publish:
		l.mu.Lock()
		l.publish[int32(binary.BigEndian.Uint32(frame[8:]))] = true
		l.mu.Unlock()
	}
	_, err := l.server.Write(frame)
	return err == nil
}

// answers carries what the broker sends.
func (p *proxy) answers(l *link) {
	defer l.close()
	for {
		frame, err := readFrame(l.server)
		if err != nil {
			return
		}
		l.mu.Lock()
		publish := l.publish[int32(binary.BigEndian.Uint32(frame[4:]))]
		l.mu.Unlock()
		n := p.network
		n.mu.Lock()
		lose := publish && n.lose > 0
		if lose {
			n.lose--
		}
		n.mu.Unlock()
		if lose {
			return
		}
		if _, err := l.client.Write(frame); err != nil {
			return
		}
	}
}

// fail refuses or loses the next publish requests.
func (n *network) fail(refuse, lose int, code int16) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuse, n.lose, n.code = refuse, lose, code
}

// hang swallows requests, of all proxies or only of one, until release. Caught gets a value when it has.
func (n *network) hang(proxies []*proxy, only *proxy) (caught <-chan struct{}, release func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hanging, n.only, n.caught = true, only, make(chan struct{}, 1)
	return n.caught, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.hanging = false
		for _, p := range proxies {
			p.mu.Lock()
			for l := range p.links {
				l.mu.Lock()
				for _, frame := range l.held {
					_, _ = l.server.Write(frame)
				}
				l.held = nil
				l.mu.Unlock()
			}
			p.mu.Unlock()
		}
	}
}

// readFrame reads one message with the four bytes of its length.
func readFrame(r io.Reader) ([]byte, error) {
	frame := make([]byte, 4)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, err
	}
	frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// refusalOf answers a publish request with an error for each partition.
func refusalOf(frame []byte, code int16) []byte {
	r := kbin.Reader{Src: frame[4:]}
	key, version, correlation := r.Int16(), r.Int16(), r.Int32()
	_ = r.NullableString() // the client id
	request := as[*kmsg.ProduceRequest](kmsg.RequestForKey(key))
	request.SetVersion(version)
	if request.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	if err := request.ReadFrom(r.Src); err != nil {
		panic(err)
	}
	response := as[*kmsg.ProduceResponse](request.ResponseKind())
	for _, topic := range request.Topics {
		answer := kmsg.NewProduceResponseTopic()
		answer.Topic, answer.TopicID = topic.Topic, topic.TopicID
		for _, p := range topic.Partitions {
			refused := kmsg.NewProduceResponseTopicPartition()
			refused.Partition, refused.ErrorCode = p.Partition, code
			answer.Partitions = append(answer.Partitions, refused)
		}
		response.Topics = append(response.Topics, answer)
	}
	body := kbin.AppendInt32(nil, correlation)
	if response.IsFlexible() {
		body = append(body, 0) // no tags
	}
	body = response.AppendTo(body)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}
