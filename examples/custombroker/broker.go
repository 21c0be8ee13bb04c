// Package custombroker is a complete [core.Broker] in one file: the place to begin when you write your own.
//
// A topic is a file in a folder, a message a line of JSON in it. That is hardly a message broker, but it has what every
// adapter has to decide on: what can never be accepted, what an error is about, and when a message counts as delivered.
package custombroker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/go-outbox/outbox/core"
)

var (
	_ core.Broker   = (*Broker)(nil)
	_ core.Topology = (*Broker)(nil)
)

// MaxMessageBytes bounds the payload of a message.
const MaxMessageBytes = 1 << 20

// Line is a message as it stands in a file.
type Line struct {
	// Token keeps the messages of a key together for those who read: they have to keep lines of one token in order.
	Token string `json:"token"`
	// Payload is base64; null is a nil payload, "" an empty one.
	Payload []byte            `json:"payload"`
	Headers map[string]string `json:"headers"`
}

// Broker appends to the files of a folder. All methods are safe for concurrent use.
type Broker struct {
	dir    string
	mu     sync.Mutex // one writer at a time; with several processes each needs a folder of its own
	closed bool
}

// Open returns a broker for the folder, which must exist once something is published.
func Open(dir string) *Broker { return &Broker{dir: dir} }

// Capabilities implements [core.Broker]. A batch is appended wholly or not at all, so the order of a key has no gaps.
func (b *Broker) Capabilities() core.Capabilities {
	return core.Capabilities{KeyGuarantee: core.PrefixPerKey, MaxBatch: 1000}
}

// Prepare implements [core.Broker]. What is refused here is parked, and hurts none of its neighbours.
func (b *Broker) Prepare(r *core.Record) (core.Prepared, error) {
	if strings.ContainsAny(r.Topic, `/\`) || strings.HasPrefix(r.Topic, ".") {
		return core.Prepared{}, fmt.Errorf("custombroker: topic %q cannot be a file name", r.Topic)
	}
	if n := len(r.Payload); n > MaxMessageBytes {
		return core.Prepared{}, fmt.Errorf("custombroker: the payload has %d bytes, the limit is %d", n, MaxMessageBytes)
	}
	line := Line{Token: r.AggregateID, Headers: map[string]string{}, Payload: r.Payload}
	for name, value := range r.WireHeaders() {
		line.Headers[name] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		return core.Prepared{}, fmt.Errorf("custombroker: encode: %w", err)
	}
	return core.Prepared{Record: r, Destination: r.Topic, Bytes: len(text) + 1, Native: append(text, '\n')}, nil
}

// PublishBatch implements [core.Broker].
func (b *Broker) PublishBatch(ctx context.Context, batch []core.Prepared) []core.Result {
	var text bytes.Buffer
	for i := range batch {
		line, _ := batch[i].Native.([]byte) // always one: Prepare made it
		text.Write(line)
	}
	result := b.publish(ctx, batch[0].Destination, text.Bytes())
	results := make([]core.Result, len(batch))
	for i := range results {
		results[i] = result // one for each message; here they share their fate
	}
	return results
}

// publish appends to the file of a topic. Each error says what it is about, so that the dispatcher knows whom to blame:
// the message (it is charged an attempt), or the destination or the broker (it is paused, and nobody is charged).
func (b *Broker) publish(ctx context.Context, topic string, text []byte) core.Result {
	failed := func(outcome core.Outcome, class core.Class, scope core.Scope, code string, err error) core.Result {
		return core.Result{Outcome: outcome, Err: &core.PublishError{
			Class: class, Scope: scope, Code: code, Err: fmt.Errorf("custombroker: topic %q: %w", topic, err),
		}}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return failed(core.OutcomeRejected, core.ClassUnavailable, core.ScopeBroker, "CLOSED", core.ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return failed(core.OutcomeSkipped, core.ClassTransient, core.ScopeMessage, "CANCELLED", err)
	}
	if _, err := os.Stat(b.dir); err != nil { // the folder is the broker, a file in it one topic
		return failed(core.OutcomeRejected, core.ClassUnavailable, core.ScopeBroker, "NO_FOLDER", err)
	}
	file, err := os.OpenFile(b.path(topic), os.O_WRONLY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return failed(core.OutcomeRejected, core.ClassMisconfigured, core.ScopeDestination, "NO_TOPIC", err)
	case err != nil:
		return failed(core.OutcomeRejected, core.ClassUnavailable, core.ScopeDestination, "OPEN", err)
	}
	stored, err := appendTo(file, text)
	if err = errors.Join(err, file.Close()); err != nil {
		return failed(stored, core.ClassUnavailable, core.ScopeDestination, "WRITE", err)
	}
	return core.Result{Outcome: core.OutcomeDelivered}
}

// appendTo appends all of the text or nothing, as durably as the disk can. When not even that can be told, the outcome
// is unknown: the message is published again, and consumers recognise its event id.
func appendTo(file *os.File, text []byte) (core.Outcome, error) {
	info, err := file.Stat()
	if err != nil {
		return core.OutcomeRejected, err
	}
	_, err = file.WriteAt(text, info.Size())
	if err = errors.Join(err, file.Sync()); err == nil {
		return core.OutcomeDelivered, nil
	}
	if undo := errors.Join(file.Truncate(info.Size()), file.Sync()); undo != nil {
		return core.OutcomeUnknown, errors.Join(err, undo)
	}
	return core.OutcomeRejected, err
}

// Check implements [core.Broker].
func (b *Broker) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("custombroker: %w", core.ErrClosed)
	}
	if _, err := os.Stat(b.dir); err != nil {
		return fmt.Errorf("custombroker: %w", err)
	}
	return nil
}

// Close implements [core.Broker]. A file write cannot be interrupted, so there is nothing to cut short.
func (b *Broker) Close(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// Declare implements [core.Topology].
func (b *Broker) Declare(_ context.Context, topics ...string) error {
	var faults []error
	for _, topic := range topics {
		file, err := os.OpenFile(b.path(topic), os.O_CREATE, 0o600)
		if err == nil {
			err = file.Close()
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// Verify implements [core.Topology].
func (b *Broker) Verify(_ context.Context, topics ...string) error {
	var faults []error
	for _, topic := range topics {
		if _, err := os.Stat(b.path(topic)); err != nil {
			faults = append(faults, fmt.Errorf("custombroker: topic %q: %w", topic, err))
		}
	}
	return errors.Join(faults...)
}

func (b *Broker) path(topic string) string { return filepath.Join(b.dir, topic+".jsonl") }
