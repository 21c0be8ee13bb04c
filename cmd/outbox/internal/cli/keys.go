package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// keyFlags name one key.
type keyFlags struct {
	settings
	key ordering.Key
	why string
}

func (p *program) keysCommand() *cobra.Command {
	var flags keyFlags
	group := &cobra.Command{
		Use:   "keys",
		Short: "Let an aggregate go on that waits for its first event",
		Long: "The events of an aggregate for a topic are published one after the other. When the first one fails, the\n" +
			"others wait for it: until its next attempt, or, when it is blocked, for a person. `outbox dead list --state\n" +
			"blocked` shows which aggregates are blocked.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags.addStore(group.PersistentFlags())
	flags.addKey(group.PersistentFlags())
	command := func(use, short string, run func(context.Context, core.DeadLetters, *keyFlags) error) *cobra.Command {
		cmd := &cobra.Command{
			Use: use, Short: short, Args: noArguments,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if flags.key.AggregateType == "" || flags.key.AggregateID == "" {
					return usage(errors.New("--aggregate-type and --aggregate-id are required"))
				}
				return p.withDeadLetters(cmd.Context(), &flags.settings, func(dead core.DeadLetters) error {
					return run(cmd.Context(), dead, &flags)
				})
			},
		}
		group.AddCommand(cmd)
		return cmd
	}
	command("unblock", "Try the first event of a blocked key again; exit with 3 when the key is not blocked", p.keysUnblock)
	skip := command("skip", "Park the first event of a key if it failed; exit with 3 when it did not", p.keysSkip)
	skip.Flags().StringVar(&flags.why, "why", "", "reason to keep with it; required")
	return group
}

func (k *keyFlags) addKey(flags *pflag.FlagSet) {
	flags.StringVar(&k.key.Topic, "topic", "", "topic as stored; leave it out for events without one")
	flags.StringVar(&k.key.AggregateType, "aggregate-type", "", "aggregate type; required")
	flags.StringVar(&k.key.AggregateID, "aggregate-id", "", "aggregate id; required")
}

func (p *program) keysUnblock(ctx context.Context, store core.DeadLetters, flags *keyFlags) error {
	n, err := store.Unblock(ctx, flags.key)
	if err != nil {
		return err
	}
	p.printf("unblocked: %d\n", n)
	if n == 0 {
		p.notef("outbox: this key is not blocked; `outbox dead list --state blocked` shows those that are\n")
		return errCheck
	}
	return nil
}

func (p *program) keysSkip(ctx context.Context, store core.DeadLetters, flags *keyFlags) error {
	if flags.why == "" {
		return usage(errors.New("--why: is missing; say why this event is not sent"))
	}
	n, err := store.SkipHead(ctx, flags.key, flags.why)
	if err != nil {
		return err
	}
	p.printf("parked: %d\n", n)
	if n == 0 {
		p.notef("outbox: the first event of this key did not fail, or there is none\n")
		return errCheck
	}
	return nil
}
