package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/go-outbox/outbox/cmd/outbox/internal/adapters"
	"github.com/go-outbox/outbox/config"
	"github.com/go-outbox/outbox/core"
)

// strategyFlags name a destination.
type strategyFlags struct {
	settings
	destination string
	broker      string
}

func (p *program) strategyCommand() *cobra.Command {
	var flags strategyFlags
	group := &cobra.Command{
		Use:   "strategy",
		Short: "Accept that a destination is published in another way from now on",
		Long: "The store remembers by which ordering strategy each destination is published. Dispatchers refuse a destination\n" +
			"that is configured in another way, as a key would go another way than its earlier events.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	accept := &cobra.Command{
		Use:   "accept",
		Short: "Publish a destination as it is configured now",
		Long: "Let the consumers of the destination finish before, or events of one aggregate may be handled out of order.\n" +
			"Dispatchers with this configuration go on within a lease.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.strategyAccept(cmd.Context(), flags) },
	}
	flags.addAll(accept.Flags())
	accept.Flags().StringVar(&flags.destination, "destination", "", "destination as the log of the dispatcher names it; required")
	accept.Flags().StringVar(&flags.broker, "of", "", "name of its broker, where there are several")
	group.AddCommand(accept)
	return group
}

func (p *program) strategyAccept(ctx context.Context, flags strategyFlags) error {
	if flags.destination == "" {
		return usage(errors.New("--destination: is missing"))
	}
	loaded, err := flags.load(ctx, adapters.Registry(p.log), false)
	if err != nil {
		return err
	}
	return untilSignals(ctx, p.log, func(ctx context.Context) error { return p.accept(ctx, loaded, flags) })
}

func (p *program) accept(ctx context.Context, loaded *config.Config, flags strategyFlags) (err error) {
	parts, err := loaded.Open(ctx, p.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.Close(ctx)) }()
	broker, tells := parts.Broker.(core.Fingerprinter)
	store, keeps := parts.Store.(core.FingerprintKeeper)
	if !tells || !keeps {
		return usage(errors.New("this store and broker compare no ordering strategies, so there is nothing to accept"))
	}
	ours, err := broker.Fingerprint(ctx, flags.broker, flags.destination)
	if err != nil {
		return err
	}
	if ours == "" {
		return usage(errors.New("--of: there are several brokers; name the one that the log names, or that routes lead to"))
	}
	theirs, err := store.Fingerprint(ctx, flags.broker, flags.destination, ours)
	switch _, switching := core.ParseSwitching(theirs); {
	case err != nil:
		return err
	case switching:
		return fmt.Errorf("destination %q is being resharded (%s): run the resharding again, which completes it", flags.destination, theirs)
	case ours == theirs:
		p.printf("%s: %s already\n", flags.destination, ours)
		return nil
	}
	if err := store.AcceptFingerprint(ctx, flags.broker, flags.destination, ours); err != nil {
		return err
	}
	p.printf("%s: %s, was %s\n", flags.destination, ours, theirs)
	return nil
}
