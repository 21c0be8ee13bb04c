package sqs_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
)

// proxy stands before a real server and injects the faults that it cannot have.
type proxy struct {
	*httptest.Server
	forward *httputil.ReverseProxy

	mu       sync.Mutex
	down     bool
	refuse   int
	entry    int // one more than the index
	lose     int
	caught   chan struct{}
	released chan struct{}
}

// startProxy starts a proxy before an endpoint.
func startProxy(tb testing.TB, endpoint string) *proxy {
	tb.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		tb.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	p := &proxy{forward: &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // the client has gone
		},
	}}
	p.Server = httptest.NewServer(p)
	tb.Cleanup(func() {
		p.Close()
		transport.CloseIdleConnections()
	})
	return p
}

func (p *proxy) change(what func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what()
}

// ServeHTTP forwards a request, or does not.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if released := p.held(); released != nil {
		select {
		case <-released:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	sends := r.Header.Get("X-Amz-Target") == "AmazonSQS.SendMessageBatch"
	switch refuse, entry, lose, down := p.take(sends); {
	case down:
		panic(http.ErrAbortHandler)
	case refuse:
		http.Error(w, `{"__type":"ServiceUnavailable","message":"refused by the test"}`, http.StatusServiceUnavailable)
	case entry > 0:
		p.refuseEntry(w, r, body, entry-1)
	case lose:
		p.forward.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	default:
		p.forward.ServeHTTP(w, r)
	}
}

func (p *proxy) held() (released chan struct{}) {
	p.change(func() {
		if released = p.released; released != nil {
			select {
			case p.caught <- struct{}{}:
			default:
			}
		}
	})
	return released
}

// take uses up one fault.
func (p *proxy) take(sends bool) (refuse bool, entry int, lose, down bool) {
	p.change(func() {
		down = p.down
		switch {
		case down || !sends:
		case p.refuse > 0:
			p.refuse--
			refuse = true
		case p.entry > 0:
			entry, p.entry = p.entry, 0
		case p.lose > 0:
			p.lose--
			lose = true
		}
	})
	return refuse, entry, lose, down
}

// refuseEntry forwards the request without one entry and adds its refusal to the reply.
func (p *proxy) refuseEntry(w http.ResponseWriter, r *http.Request, body []byte, k int) {
	var request struct {
		QueueURL string `json:"QueueUrl"`
		Entries  []json.RawMessage
	}
	_ = json.Unmarshal(body, &request)
	if k >= len(request.Entries) {
		p.forward.ServeHTTP(w, r)
		return
	}
	var refused struct {
		ID string `json:"Id"`
	}
	_ = json.Unmarshal(request.Entries[k], &refused)
	request.Entries = append(request.Entries[:k:k], request.Entries[k+1:]...)
	reply := map[string]json.RawMessage{}
	if len(request.Entries) > 0 {
		body, _ = json.Marshal(request)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Del("Accept-Encoding")
		answer := httptest.NewRecorder()
		p.forward.ServeHTTP(answer, r)
		_ = json.Unmarshal(answer.Body.Bytes(), &reply)
	}
	failed := sqsfake.InternalError()
	reply["Failed"], _ = json.Marshal([]map[string]any{{
		"Id": refused.ID, "Code": failed.Code, "Message": failed.Message, "SenderFault": failed.SenderFault,
	}})
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	_ = json.NewEncoder(w).Encode(reply)
}

// hang is what brokertest.Server.Hang asks for.
func (p *proxy) hang() (<-chan struct{}, func()) {
	caught, end := make(chan struct{}, 1), make(chan struct{})
	p.change(func() { p.caught, p.released = caught, end })
	return caught, sync.OnceFunc(func() {
		close(end)
		p.change(func() { p.released = nil })
	})
}
