package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// DefaultQuiet is how long publishing rests before the fences are sent, for dispatchers with the default settings of
// [core.Config]: twice the time for which they trust what they read in the store, and once that of a publish call.
const DefaultQuiet = 2*core.DefaultLeaseTTL + core.DefaultPublishTimeout

// Resharding moves a topic from one generation of [ordering.Shards] to the next, with another number of shards or with
// other numbers of queues, while dispatchers and consumers are running. All dispatchers of the topic are led by one row
// in their store, the fingerprint of the topic's strategy; none has to be stopped or started.
type Resharding struct {
	// Topic is the topic to move. Required.
	Topic string
	// Old and New are Brokers of the same server with the Strategy and Groups of each generation. Required.
	Old, New *Broker
	// Store is the store of the dispatchers. Required.
	Store core.FingerprintKeeper
	// BrokerName is how the dispatchers' configuration names this broker, where they have several; empty for one.
	BrokerName string
	// Quiet is how long publishing rests before the fences are sent: longer than any dispatcher can go on as before
	// after the row was set, which is its LeaseTTL and its PublishTimeout ([core.Config]). 0 means DefaultQuiet; when a
	// dispatcher has longer times than the defaults, two of its LeaseTTL and one PublishTimeout.
	Quiet time.Duration
}

// ErrFenced is wrapped by errors of [Resharding.Run] after which there is no way back to the old generation.
var ErrFenced = errors.New("fences may be in the old queues")

// Run declares the new generation, sets the row to "switching", which makes every dispatcher hold the topic's events in
// the outbox, waits for Quiet, sends the fences, and sets the row to the new strategy, with which every dispatcher goes
// on. That takes Quiet and as much as a lease of the dispatchers.
//
// Consumers of the old generation end at the fences (Consume returns [ErrGenerationEnded]); those of the new one
// (ConsumerConfig.PreviousQueues) handle the rest of the old generation before they begin. Start them whenever you
// like. When the old queues are no longer consumed, delete them.
//
// When it fails, or its process dies, run it again, from any process and as often as necessary: it goes on from what
// the row says, and does nothing once all is done. Until then the topic may be held. The way back is to accept the
// fingerprint of the old strategy in the store, but not after an error that wraps [ErrFenced].
//
// What a dispatcher sends that was stalled for longer than Quiet is refused, as the bindings of the old generation are
// gone, and published to the new generation. Only topics of Config.AcceptUnroutable, and other queues that are bound to
// the old shards, have Quiet alone.
func (r Resharding) Run(ctx context.Context) error {
	if err := r.validate(); err != nil {
		return err
	}
	if err := r.run(ctx); err != nil {
		return fmt.Errorf("rabbitmq: reshard topic %q: %w", r.Topic, err)
	}
	return nil
}

func (r Resharding) run(ctx context.Context) error {
	from, to := r.Old.config.Strategy.Fingerprint(), r.New.config.Strategy.Fingerprint()
	switching := core.Switching{From: from, To: to}.String()
	log := r.New.config.Logger.With("topic", r.Topic, "from", from, "to", to)
	row, err := r.row(ctx)
	switch {
	case err != nil:
		return err
	case row == to:
		log.InfoContext(ctx, "rabbitmq: resharding: the topic has gone over already")
		return nil
	case row != from && row != switching:
		return fmt.Errorf("it is published by the strategy %q, and not by Old's, %q", row, from)
	}
	if err := r.New.Declare(ctx, r.Topic); err != nil {
		return err
	}
	if err := r.setRow(ctx, switching); err != nil {
		return err
	}
	log.InfoContext(ctx, "rabbitmq: resharding: publishing rests until no dispatcher can have a call in progress",
		"quiet", r.quiet(), "goes_on_from", row)
	if err := wait(ctx, r.quiet()); err != nil {
		return fmt.Errorf("the topic is held; run it again, or accept the strategy %q to go back: %w", from, err)
	}
	// Whatever has happened since, nothing may be fenced that is being published to.
	if row, err = r.row(ctx); err != nil || row != switching {
		return errors.Join(fmt.Errorf("somebody else has set the strategy to %q meanwhile", row), err)
	}
	if err := r.Old.Fence(ctx, r.Topic); err != nil {
		return fmt.Errorf("%w: the topic is held; run it again: %w", ErrFenced, err)
	}
	if err := r.setRow(ctx, to); err != nil {
		return fmt.Errorf("%w: the topic is held; run it again: %w", ErrFenced, err)
	}
	log.InfoContext(ctx, "rabbitmq: resharding: done, dispatchers go on with the new generation at their next comparison")
	return nil
}

// row is what leads the dispatchers.
func (r Resharding) row(ctx context.Context) (string, error) {
	row, err := r.Store.Fingerprint(ctx, r.BrokerName, r.Topic, r.Old.config.Strategy.Fingerprint())
	if err != nil {
		return "", fmt.Errorf("read the topic's strategy in the store: %w", err)
	}
	return row, nil
}

func (r Resharding) setRow(ctx context.Context, fingerprint string) error {
	if err := r.Store.AcceptFingerprint(ctx, r.BrokerName, r.Topic, fingerprint); err != nil {
		return fmt.Errorf("set the topic's strategy in the store to %q: %w", fingerprint, err)
	}
	return nil
}

func (r Resharding) quiet() time.Duration {
	if r.Quiet == 0 {
		return DefaultQuiet
	}
	return r.Quiet
}

func (r Resharding) validate() error {
	if r.Old == nil || r.New == nil || r.Store == nil {
		return fault("Resharding", "needs Old, New and Store")
	}
	var faults []error
	from, okFrom := r.Old.config.Strategy.(ordering.Shards)
	to, okTo := r.New.config.Strategy.(ordering.Shards)
	if from, to = from.WithDefaults(), to.WithDefaults(); !okFrom || !okTo || to.Generation != from.Generation+1 {
		faults = append(faults, fault("Resharding.New", fmt.Sprintf("has strategy %s, which is not the generation after %s",
			r.New.config.Strategy.Fingerprint(), r.Old.config.Strategy.Fingerprint())))
	}
	if len(r.Old.config.groupsOf(r.Topic)) == 0 || len(r.New.config.groupsOf(r.Topic)) == 0 {
		faults = append(faults, fault("Resharding.Topic", fmt.Sprintf("%q has no consumer groups in Config.Groups", r.Topic)))
	}
	if r.Quiet < 0 {
		faults = append(faults, fault("Resharding.Quiet", fmt.Sprintf("%v is negative; 0 means %v", r.Quiet, DefaultQuiet)))
	}
	return errors.Join(faults...)
}
