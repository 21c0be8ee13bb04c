package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-outbox/outbox/cmd/outbox/internal/adapters"
	"github.com/go-outbox/outbox/config"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/notify"
)

// closeTimeout bounds closing the broker's connections, which have nothing left to do.
const closeTimeout = 5 * time.Second

type runFlags struct {
	settings
	once bool
}

func (p *program) runCommand() *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Dispatch events until a signal comes, or with --once until none is left",
		Long: "Run carries events from the store to the broker. Start as many as you like on one store: they share the\n" +
			"work and take over from each other. A store or broker that cannot be reached, or tables that are not there\n" +
			"yet, do not end it.\n\n" +
			"The first SIGINT or SIGTERM lets what is in flight finish, the second one aborts.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context(), flags) },
	}
	flags.addAll(cmd.Flags())
	cmd.Flags().BoolVar(&flags.once, "once", false, "dispatch what is there and return")
	return cmd
}

// run reports all faults of the settings at once, and dispatches until a signal comes.
func (p *program) run(ctx context.Context, flags runFlags) error {
	registry := adapters.Registry(p.log)
	if flags.once { // nobody waits for tables that come later
		registry = adapters.Existing(p.log)
	}
	loaded, err := flags.load(ctx, registry, false)
	if err != nil {
		return err
	}
	return untilSignals(ctx, p.log, func(ctx context.Context) error {
		return p.dispatch(ctx, loaded, flags.once)
	})
}

// dispatch opens both ends and runs a dispatcher between them.
func (p *program) dispatch(ctx context.Context, loaded *config.Config, once bool) (err error) {
	store, err := loaded.OpenStore(ctx, p.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	broker, err := loaded.OpenBroker(ctx, p.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeBroker(ctx, broker)) }()

	count := &tally{}
	settings := loaded.Dispatcher(p.log)
	settings.Observer = count
	if webhook, wanted := loaded.Notify(p.log); wanted {
		hook, err := notify.New(webhook)
		if err != nil {
			return err
		}
		settings.Observer = observers{count, hook}
		end := beside(ctx, hook.Run)
		defer func() { err = errors.Join(err, end()) }()
	}
	dispatcher, err := core.NewDispatcher(store, broker, settings)
	if err != nil {
		return err
	}
	defer func() { count.report(p.log) }()
	if !once {
		return dispatcher.Run(ctx)
	}
	if err := dispatcher.RunOnce(ctx); err != nil || settings.EnqueueOnly {
		return err
	}
	tellWaiting(ctx, p.log, store)
	return nil
}

// tellWaiting says how many events are left that need a person, also from earlier runs: nothing else would show them to
// who runs this from a timer.
func tellWaiting(ctx context.Context, log *slog.Logger, store core.Store) {
	letters, ok := store.(core.DeadLetters)
	if !ok {
		return
	}
	for _, of := range []struct {
		state        core.DeadLetterState
		text, counts string
	}{
		{core.StateBlocked, "keys are blocked: all their events wait until a person unblocks or skips the first one", "keys"},
		{core.StateParked, "events are parked: they are not sent until a person requeues them", "events"},
	} {
		n, err := letters.CountDead(ctx, core.DeadLetterFilter{State: of.state})
		switch {
		case err != nil:
			log.Warn("cannot count the events that need a person", "state", of.state, "error", err)
		case n > 0:
			log.Warn(of.text, of.counts, n, "look", "outbox dead list --state "+string(of.state))
		}
	}
}

// beside runs in a goroutine what outlives a signal, until the returned function ends it and waits.
func beside(ctx context.Context, run func(context.Context) error) (end func() error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func() error {
		stop()
		return <-ended
	}
}

// untilSignals calls work with a context that the first signal ends, and leaves it behind at the second.
func untilSignals(ctx context.Context, log *slog.Logger, work func(context.Context) error) error {
	ctx, drain := context.WithCancel(ctx)
	defer drain()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ended := make(chan error, 1)
	go func() { ended <- work(ctx) }()
	for {
		select {
		case err := <-ended:
			return err
		case s := <-signals:
			if ctx.Err() != nil {
				return errInterrupted
			}
			log.Info("finishing what is in flight; a second signal aborts", "signal", s.String())
			drain()
		}
	}
}

func closeBroker(ctx context.Context, broker core.Broker) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return broker.Close(ctx)
}

// observers are told one after the other.
type observers []core.Observer

// Observe implements [core.Observer].
func (o observers) Observe(event core.Event) {
	for _, observer := range o {
		observer.Observe(event)
	}
}

// tally counts what a run did, for its last line.
type tally struct {
	published, parked int
	lanes, total      int
}

// Observe is called by the dispatcher from one goroutine.
func (t *tally) Observe(event core.Event) {
	switch e := event.(type) {
	case core.SettleEvent:
		if e.Err == nil {
			t.published += e.Published
			t.parked += e.Parked
		}
	case core.LanesEvent:
		t.lanes, t.total = max(t.lanes, e.Held), e.Total
	}
}

func (t *tally) report(log *slog.Logger) {
	log.Info("done", "published", t.published, "parked", t.parked)
	if t.lanes < t.total {
		log.Warn("lanes of another dispatcher were left to it, with the events in them; when it is dead, run again after "+
			"its lease", "held", t.lanes, "total", t.total)
	}
}
