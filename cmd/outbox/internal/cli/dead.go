package cli

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-outbox/outbox/cmd/outbox/internal/adapters"
	"github.com/go-outbox/outbox/core"
)

// deadFlags are the flags of the commands about dead letters.
type deadFlags struct {
	settings
	filter        core.DeadLetterFilter
	state         string
	after, before string // when they were created
	afterID       int64
	limit         int
	json, payload bool
	all, dryRun   bool
	why           string
}

func (p *program) deadCommand() *cobra.Command {
	var flags deadFlags
	group := &cobra.Command{
		Use:   "dead",
		Short: "Look at events that need a person, and decide about them",
		Long: "An event that cannot be published is parked: it keeps its row with the reason, and its aggregate goes on\n" +
			"without it. With the policy block it is blocked: it stays the first of its aggregate, which waits.\n\n" +
			"Repair the cause, then requeue the events, or discard them. Give several flags to select what all of them\n" +
			"apply to.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags.addStore(group.PersistentFlags())
	flags.addFilter(group.PersistentFlags())
	command := func(use, short string, run func(context.Context, core.DeadLetters, *deadFlags) error) *pflag.FlagSet {
		cmd := &cobra.Command{
			Use: use, Short: short, Args: noArguments,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if err := flags.parse(); err != nil {
					return usage(err)
				}
				return p.withDeadLetters(cmd.Context(), &flags.settings, func(dead core.DeadLetters) error {
					return run(cmd.Context(), dead, &flags)
				})
			},
		}
		group.AddCommand(cmd)
		return cmd.Flags()
	}
	list := command("list", "Show them, by id", p.deadList)
	list.IntVar(&flags.limit, "limit", 100, "how many to show")
	list.Int64Var(&flags.afterID, "after", 0, "begin above this id")
	list.BoolVar(&flags.payload, "payload", false, "with --json, show what is in the events too")
	count := command("count", "Say how many there are", p.deadCount)
	for _, f := range []*pflag.FlagSet{list, count} {
		f.BoolVar(&flags.json, "json", false, "print one JSON object a line")
	}
	requeue := command("requeue", "Make them unpublished again: they are tried anew, at the place of their id", p.deadRequeue)
	discard := command("discard", "Decide that parked events are not sent; requeue --state discarded undoes it", p.deadDiscard)
	for _, f := range []*pflag.FlagSet{requeue, discard} {
		f.BoolVar(&flags.all, "all", false, "needed when nothing else selects events")
		f.BoolVar(&flags.dryRun, "dry-run", false, "only show how many there are, and the first of them")
	}
	discard.StringVar(&flags.why, "why", "", "reason to keep with them; required")
	return group
}

func (d *deadFlags) addFilter(flags *pflag.FlagSet) {
	flags.StringVar(&d.state, "state", string(core.StateParked), "parked, blocked or discarded")
	flags.StringArrayVar(&d.filter.EventIDs, "id", nil, "event id; may be given again")
	flags.StringVar(&d.filter.Topic, "topic", "", "topic as stored")
	flags.StringVar(&d.filter.AggregateType, "aggregate-type", "", "aggregate type")
	flags.StringVar(&d.filter.AggregateID, "aggregate-id", "", "aggregate id")
	flags.StringVar(&d.filter.EventType, "event-type", "", "event type")
	flags.StringVar(&d.filter.Reason, "reason", "", "part of the reason, upper or lower case")
	flags.StringVar(&d.after, "created-after", "", "created then or later: 2026-11-30T20:00:00Z, or 24h for that long ago")
	flags.StringVar(&d.before, "created-before", "", "created earlier: in the same form")
}

// parse makes the filter of the flags.
func (d *deadFlags) parse() error {
	d.filter.State = core.DeadLetterState(d.state)
	if d.filter.Validate() != nil {
		return errors.New("--state: must be parked, blocked or discarded")
	}
	var afterErr, beforeErr error
	now := time.Now()
	d.filter.CreatedAfter, afterErr = moment("--created-after", d.after, now)
	d.filter.CreatedBefore, beforeErr = moment("--created-before", d.before, now)
	faults := []error{afterErr, beforeErr}
	d.flags.VisitAll(func(f *pflag.Flag) { // a variable that a script has forgotten to set must not select more
		if f.Changed && f.Value.String() == "" && f.Name != "store" {
			faults = append(faults, fmt.Errorf("--%s: is empty", f.Name))
		}
	})
	if slices.Contains(d.filter.EventIDs, "") {
		faults = append(faults, errors.New("--id: is empty"))
	}
	if d.payload && !d.json {
		faults = append(faults, errors.New("--payload: works with --json only"))
	}
	return errors.Join(faults...)
}

// moment reads a time, or how long ago it is.
func moment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("%s: must be a time such as 2026-11-30T20:00:00Z, or a duration such as 24h", flag)
	}
	return t, nil
}

// selective keeps a forgotten flag from changing everything.
func (d *deadFlags) selective() error {
	filter := d.filter
	filter.State = ""
	switch empty := reflect.ValueOf(filter).IsZero(); {
	case empty && !d.all:
		return usage(fmt.Errorf("nothing selects events: say --all to mean everything that is %s", d.filter.State))
	case !empty && d.all:
		return usage(errors.New("--all: other flags select events; leave out either"))
	}
	return nil
}

func (p *program) withDeadLetters(ctx context.Context, s *settings, use func(core.DeadLetters) error) error {
	return p.withStore(ctx, adapters.Existing(p.log), s, func(store core.Store) error {
		dead, ok := store.(core.DeadLetters)
		if !ok {
			return usage(errors.New("store: this store cannot show or change dead letters"))
		}
		return use(dead)
	})
}

func (p *program) deadList(ctx context.Context, store core.DeadLetters, flags *deadFlags) error {
	if flags.limit < 1 {
		return usage(errors.New("--limit: must be at least 1"))
	}
	shown, after := 0, flags.afterID
	for shown < flags.limit {
		want := min(deadPage, flags.limit-shown)
		dead, err := store.ListDead(ctx, flags.filter, after, want)
		if err != nil {
			return err
		}
		if err := p.printDead(dead, flags, shown == 0); err != nil {
			return err
		}
		shown += len(dead)
		if len(dead) < want {
			return nil
		}
		after = dead[len(dead)-1].Record.ID
	}
	rest, err := store.ListDead(ctx, flags.filter, after, 1)
	if len(rest) > 0 {
		p.notef("there are more: go on with --after %d\n", after)
	}
	return err
}

func (p *program) deadCount(ctx context.Context, store core.DeadLetters, flags *deadFlags) error {
	n, err := store.CountDead(ctx, flags.filter)
	switch {
	case err != nil:
		return err
	case flags.json:
		p.printf("{\"count\":%d}\n", n)
	default:
		p.printf("%d\n", n)
	}
	return nil
}

func (p *program) deadRequeue(ctx context.Context, store core.DeadLetters, flags *deadFlags) error {
	if err := flags.selective(); err != nil {
		return err
	}
	return p.deadChange(ctx, store, flags, "requeued", func() (int, error) { return store.RequeueDead(ctx, flags.filter) })
}

func (p *program) deadDiscard(ctx context.Context, store core.DeadLetters, flags *deadFlags) error {
	if err := flags.selective(); err != nil {
		return err
	}
	if flags.filter.ValidateDiscard() != nil {
		return usage(errors.New("--state: only parked events can be discarded; `outbox keys skip` parks a blocked one"))
	}
	if flags.why == "" {
		return usage(errors.New("--why: is missing; say why these events are not sent"))
	}
	return p.deadChange(ctx, store, flags, "discarded", func() (int, error) {
		return store.DiscardDead(ctx, flags.filter, flags.why)
	})
}

// deadChange changes the selected events, or only shows them. An id that selects none is most likely misspelt.
func (p *program) deadChange(
	ctx context.Context, store core.DeadLetters, flags *deadFlags, done string, change func() (int, error),
) error {
	ids, err := absent(ctx, store, flags.filter) // before they are changed
	if err != nil {
		return err
	}
	if flags.dryRun {
		err = p.deadDryRun(ctx, store, flags)
	} else {
		var n int
		n, err = change()
		p.printf("%s: %d\n", done, n) // also when it failed on the way
	}
	if err != nil {
		return err
	}
	return p.tellAbsent(ctx, store, flags.filter.State, ids)
}

// deadDryRun shows what a command would change.
func (p *program) deadDryRun(ctx context.Context, store core.DeadLetters, flags *deadFlags) error {
	const first = 10
	n, err := store.CountDead(ctx, flags.filter)
	if err != nil {
		return err
	}
	p.printf("selected: %d; nothing was changed\n", n)
	if n == 0 {
		return nil
	}
	dead, err := store.ListDead(ctx, flags.filter, 0, first)
	if err != nil {
		return err
	}
	return p.printDead(dead, flags, true)
}
