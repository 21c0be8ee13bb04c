package notify

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/go-outbox/outbox/core"
)

var _ core.Observer = (*Webhook)(nil)

// Webhook tells a URL what needs a person. Give it to any number of dispatchers as their Observer, and call
// [Webhook.Run] in a goroutine. Make one with [New].
type Webhook struct {
	cfg    Config
	host   string // what may be shown of the URL
	board  *board
	wake   chan struct{}
	ran    atomic.Bool
	client *http.Client
	owned  bool // the client is ours
}

// New makes a Webhook. It starts nothing: what is observed waits for [Webhook.Run]. The error lists the faults of the
// configuration ([Config.Validate]).
func New(cfg Config) (*Webhook, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("notify: %w", err)
	}
	cfg = cfg.WithDefaults()
	w := &Webhook{
		cfg: cfg, host: cfg.URL.String(), board: newBoard(cfg), wake: make(chan struct{}, 1),
		client: cfg.Client, owned: cfg.Client == nil,
	}
	if w.owned {
		w.client = newClient()
	}
	return w, nil
}

// newClient follows no redirects: they would take a signed message, or a token in the URL, somewhere else.
func newClient() *http.Client {
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if shared, ok := http.DefaultTransport.(*http.Transport); ok {
		client.Transport = shared.Clone()
	}
	return client
}

// Observe implements [core.Observer]. It never waits for the network: it counts, and [Webhook.Run] tells. Safe for
// concurrent use.
func (w *Webhook) Observe(event core.Event) {
	now := time.Now()
	switch e := event.(type) {
	case core.ParkEvent:
		w.board.happened(subject{kind: parked, topic: topicOf(e.Record)}, detailOf(now, e.Record, e.Attempts, e.Reason))
	case core.BlockEvent:
		w.board.happened(subject{kind: blocked, topic: topicOf(e.Record)}, detailOf(now, e.Record, e.Attempts, e.Reason))
	case core.PauseEvent:
		d := detail{at: now, attempts: e.Failures}
		if e.Err != nil {
			d.reason = e.Err.Error()
		}
		w.board.stopped(subject{kind: paused, broker: e.Broker, destination: e.Destination}, d)
	case core.HaltEvent:
		w.board.stopped(subject{kind: halted, broker: e.Broker, destination: e.Destination},
			detailOf(now, e.Record, e.Record.Attempts, ""))
	case core.ResumeEvent:
		w.board.resumed(e.Broker, e.Destination, now)
	default:
		return
	}
	select {
	case w.wake <- struct{}{}:
	default: // it is awake
	}
}

// topicOf is where a record is published; when configuration has not said yet, that is its aggregate type.
func topicOf(r *core.Record) string { return cmp.Or(r.Topic, r.AggregateType) }

func detailOf(at time.Time, r *core.Record, attempts int, reason string) detail {
	return detail{
		at: at, outboxID: r.ID, eventID: r.EventID, aggregateType: r.AggregateType, aggregateID: r.AggregateID,
		eventType: r.EventType, attempts: attempts, reason: reason,
	}
}

// errRunTwice says that Run was called before.
var errRunTwice = errors.New("notify: Run can be called once")

// Run tells what is observed until ctx ends. Then it tells what is left and returns nil: that takes at most
// Config.Timeout, in which what fails is tried again. It logs what it cannot tell, and at its start that messages are not
// signed, if there is no key to sign them. A second call is an error.
func (w *Webhook) Run(ctx context.Context) error {
	if w.ran.Swap(true) {
		return errRunTwice
	}
	if w.cfg.Format == Generic && w.cfg.Secret == "" {
		w.cfg.Logger.Warn("notify: there is no secret, so messages are not signed: the receiver cannot tell who sent them",
			"webhook", w.host)
	}
	if w.owned {
		defer w.client.CloseIdleConnections()
	}
	sending, cancel := outlive(ctx, w.cfg.Timeout)
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		n, due := w.board.take(time.Now(), false)
		if n != nil {
			_ = w.tell(sending, n) // it is logged, and tried again
			continue
		}
		timer.Stop()
		if !due.IsZero() {
			timer.Reset(time.Until(due))
		}
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-timer.C:
		}
	}
	w.flush(sending)
	return nil
}

// outlive returns a context that ends some time after ctx, so that what is being sent then is not cut off.
func outlive(ctx context.Context, extra time.Duration) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	timer := time.AfterFunc(extra, cancel)
	timer.Stop() // for now
	unlink := context.AfterFunc(ctx, func() { timer.Reset(extra) })
	return later, func() {
		unlink()
		timer.Stop()
		cancel()
	}
}

// lastTries is the wait between tries at the end: whoever restarts the receiver at that moment needs a second or two.
func lastTries() core.Backoff {
	return core.Backoff{Initial: 100 * time.Millisecond, Max: 2 * time.Second, Multiplier: 2}
}

// flush tells what is left until ctx ends.
func (w *Webhook) flush(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		n, _ := w.board.take(time.Now(), true)
		if n == nil {
			break
		}
		if w.tell(ctx, n) == nil {
			failures = 0
			continue
		}
		failures++
		select {
		case <-ctx.Done():
		case <-time.After(lastTries().Delay(failures)):
		}
	}
	if left := w.board.untold(); left > 0 {
		w.cfg.Logger.Error("notify: ended with events that nobody was told of", "webhook", w.host, "events", left)
	}
}

// tell sends one notice and puts it back when that fails.
func (w *Webhook) tell(ctx context.Context, n *notice) error {
	err := w.send(ctx, n)
	w.board.done(time.Now(), n, err)
	if err != nil && ctx.Err() == nil {
		w.cfg.Logger.Warn("notify: the webhook cannot be told, trying again", "type", n.eventType(), "events", n.count, "error", err)
	}
	return err
}

func (w *Webhook) send(ctx context.Context, n *notice) error {
	now := time.Now()
	body, err := w.body(now, n)
	if err != nil {
		return fmt.Errorf("notify: %s: encode: %w", w.host, err)
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, string(w.cfg.URL), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("notify: %s: %w", w.host, withoutURL(err))
	}
	req.Header.Set("Content-Type", "application/json")
	if w.cfg.Format == Generic {
		w.sign(req, now, body)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return fmt.Errorf("notify: %s: %w", w.host, withoutURL(err))
	}
	defer func() { _ = resp.Body.Close() }()
	const enough = 64 << 10 // of an answer, to use the connection again
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, enough)); err != nil {
		return fmt.Errorf("notify: %s: answer: %w", w.host, withoutURL(err))
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("notify: %s answered %d %s", w.host, resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil
}

// withoutURL takes the URL out of an error of net/http.
func withoutURL(err error) error {
	var with *url.Error
	if errors.As(err, &with) {
		return with.Err
	}
	return err
}
