package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/go-outbox/outbox/cmd/outbox/internal/adapters"
	"github.com/go-outbox/outbox/config"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// strategyFlags name a destination: itself, or the topic that leads there.
type strategyFlags struct {
	settings
	topic       string
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
		Short: "Publish a destination as it is configured now; exit with 3 when nothing was ever published there",
		Long: "Let the consumers of the destination finish before, or events of one aggregate may be handled out of order.\n" +
			"Dispatchers with this configuration go on within a lease. Name the topic, or the destination that it leads to:\n" +
			"at SQS the queue. A destination where nothing was published yet needs nothing: its first event decides.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.strategyAccept(cmd.Context(), flags) },
	}
	flags.addAll(accept.Flags())
	accept.Flags().StringVar(&flags.topic, "topic", "", "topic as the configuration names it")
	accept.Flags().StringVar(&flags.destination, "destination", "", "instead of a topic: the destination, as the log of the dispatcher names it")
	accept.Flags().StringVar(&flags.broker, "of", "", "with --destination: name of its broker, where several have that destination")
	group.AddCommand(accept)
	return group
}

func (p *program) strategyAccept(ctx context.Context, flags strategyFlags) error {
	switch {
	case (flags.topic == "") == (flags.destination == ""):
		return usage(errors.New("give either --topic or --destination"))
	case flags.topic != "" && flags.broker != "":
		return usage(errors.New("--of: goes with --destination; a topic has its broker by the routes"))
	}
	loaded, err := flags.load(ctx, adapters.Existing(p.log), false)
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
	known, err := store.Fingerprints(ctx)
	if err != nil {
		return err
	}
	_, several := parts.Broker.(core.Multi)
	maps.DeleteFunc(known, func(o ordering.Outlet, _ string) bool { return several == (o.Broker == "") }) // of another configuration
	outlet, err := flags.outlet(parts.Broker, known)
	if err != nil {
		return err
	}
	theirs, is := known[outlet]
	if !is {
		p.notef("outbox: nothing was published to destination %s yet, so there is nothing to accept; %s\n", nameOf(outlet), listed(known))
		return errCheck
	}
	ours, err := broker.Fingerprint(ctx, outlet.Broker, outlet.Destination)
	switch _, switching := core.ParseSwitching(theirs); {
	case err != nil:
		return err
	case ours == "":
		return usage(fmt.Errorf("--of: the configuration has no broker %q with an ordering strategy", outlet.Broker))
	case switching:
		return fmt.Errorf("destination %s is being resharded (%s): run the resharding again, which completes it", nameOf(outlet), theirs)
	case ours == theirs:
		p.printf("%s: %s already\n", nameOf(outlet), ours)
		return nil
	}
	if err := store.AcceptFingerprint(ctx, outlet.Broker, outlet.Destination, ours); err != nil {
		return err
	}
	p.printf("%s: %s, was %s\n", nameOf(outlet), ours, theirs)
	return nil
}

// outlet is the destination that is meant. It need not be a known one, unless that says which broker has it.
func (s *strategyFlags) outlet(broker core.Broker, known map[ordering.Outlet]string) (ordering.Outlet, error) {
	if s.topic != "" {
		return leadsTo(broker, s.topic)
	}
	named := ordering.Outlet{Broker: s.broker, Destination: s.destination}
	if s.broker != "" {
		return named, nil
	}
	var brokers []string
	for o := range known {
		if o.Destination == s.destination {
			named = o
			brokers = append(brokers, o.Broker)
		}
	}
	if len(brokers) > 1 {
		slices.Sort(brokers)
		return named, usage(fmt.Errorf("--of: is missing; destination %s is at the brokers %s", s.destination, strings.Join(brokers, ", ")))
	}
	return named, nil
}

// leadsTo asks the broker, which knows without sending anything, where it would publish an event of the topic.
func leadsTo(broker core.Broker, topic string) (ordering.Outlet, error) {
	prepared, err := broker.Prepare(&core.Record{ID: 1, Message: core.Message{
		EventID: core.NewEventID(), Topic: topic, AggregateType: "any", AggregateID: "any", EventType: "any", Payload: []byte(`{}`),
	}})
	if err != nil {
		return ordering.Outlet{}, usage(fmt.Errorf("--topic: the broker takes no events of topic %q: %w", topic, err))
	}
	return ordering.Outlet{Broker: prepared.Broker, Destination: prepared.Destination}, nil
}

func nameOf(o ordering.Outlet) string {
	if o.Broker == "" {
		return o.Destination
	}
	return o.Destination + " of broker " + o.Broker
}

// listed says which destinations there are.
func listed(known map[ordering.Outlet]string) string {
	if len(known) == 0 {
		return "the store knows no destination"
	}
	outlets := slices.SortedFunc(maps.Keys(known), func(a, b ordering.Outlet) int {
		return cmp.Or(cmp.Compare(a.Destination, b.Destination), cmp.Compare(a.Broker, b.Broker))
	})
	names := make([]string, len(outlets))
	for i, o := range outlets {
		names[i] = nameOf(o)
	}
	return "the store knows " + strings.Join(names, ", ")
}
