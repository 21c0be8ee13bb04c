package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/go-outbox/outbox/cmd/outbox/internal/adapters"
	"github.com/go-outbox/outbox/config"
	"github.com/go-outbox/outbox/core"
)

// errNoTables says that a store keeps no tables.
var errNoTables = errors.New("store: this store has no tables to migrate")

type migrateFlags struct {
	settings
	to   int
	yes  bool
	down bool // print the way down
}

func (p *program) migrateCommand() *cobra.Command {
	var flags migrateFlags
	migrate := &cobra.Command{
		Use:   "migrate",
		Short: "Make, change and show the outbox tables",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags.addStore(migrate.PersistentFlags())
	command := func(use, short string, run func(context.Context, migrateFlags) error) *cobra.Command {
		cmd := &cobra.Command{
			Use: use, Short: short, Args: noArguments,
			RunE: func(cmd *cobra.Command, _ []string) error {
				err := run(cmd.Context(), flags)
				if errors.Is(err, errNoTables) {
					return usage(err)
				}
				return err
			},
		}
		migrate.AddCommand(cmd)
		return cmd
	}
	up := command("up", "Make the tables, or bring them up to date", p.migrateUp)
	up.Flags().IntVar(&flags.to, "to", -1, "version to stop at (default the latest)")
	down := command("down", "Undo the latest step; this loses data", p.migrateDown)
	down.Flags().IntVar(&flags.to, "to", -1, "version to go down to, 0 for nothing left (default one less)")
	down.Flags().BoolVar(&flags.yes, "yes", false, "do not ask")
	command("status", "Show the steps, exit with 3 when one is pending", p.migrateStatus)
	printed := command("print", "Print the SQL for tools of your own; needs no database", p.migratePrint)
	printed.Flags().BoolVar(&flags.down, "down", false, "print how to undo the steps")
	return migrate
}

// migrating opens the store for as long as use takes.
func (p *program) migrating(
	ctx context.Context, registry config.Registry, flags migrateFlags, use func(core.Migrator) error,
) error {
	return p.withStore(ctx, registry, &flags.settings, func(store core.Store) error {
		migrator, ok := store.(core.Migrator)
		if !ok {
			return errNoTables
		}
		return use(migrator)
	})
}

// withStore opens the store for as long as use takes; there need be no broker.
func (p *program) withStore(
	ctx context.Context, registry config.Registry, s *settings, use func(core.Store) error,
) (err error) {
	loaded, err := s.load(ctx, registry, true)
	if err != nil {
		return err
	}
	store, err := loaded.OpenStore(ctx, p.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return use(store)
}

func (p *program) migrateUp(ctx context.Context, flags migrateFlags) error {
	return p.migrating(ctx, adapters.Registry(p.log), flags, func(m core.Migrator) error {
		version, err := m.SchemaVersion(ctx)
		if err != nil {
			return err
		}
		target, latest := flags.to, latest(m.Migrations())
		if target == -1 {
			target = max(latest, version)
		}
		if target < version || target > max(latest, version) {
			return usage(fmt.Errorf("--to: the tables are at version %d, and the latest version is %d", version, latest))
		}
		return p.migrate(ctx, m, target)
	})
}

func (p *program) migrateDown(ctx context.Context, flags migrateFlags) error {
	return p.migrating(ctx, adapters.Existing(p.log), flags, func(m core.Migrator) error {
		version, err := m.SchemaVersion(ctx)
		if err != nil {
			return err
		}
		target := flags.to
		if target == -1 {
			target = max(version-1, 0)
		}
		if target < 0 || target > version {
			return usage(fmt.Errorf("--to: %d is not below the present version, %d", target, version))
		}
		if target < version && !flags.yes {
			if err := p.confirm(fmt.Sprintf("Going from version %d down to %d deletes events. Go on?", version, target)); err != nil {
				return err
			}
		}
		return p.migrate(ctx, m, target)
	})
}

// confirm asks a person; where there is none, it asks for --yes.
func (p *program) confirm(question string) error {
	if !isTerminal(p.in) {
		return usage(errors.New("this loses data: say --yes"))
	}
	p.notef("%s [y/N] ", question)
	answer, _ := bufio.NewReader(p.in).ReadString('\n') // no answer is a no
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

func (p *program) migrate(ctx context.Context, m core.Migrator, target int) error {
	steps, err := m.Migrate(ctx, target)
	if err != nil {
		return err
	}
	for _, step := range steps {
		p.printf("done: %d %s\n", step.Version, step.Name)
	}
	p.printf("the tables are at version %d\n", target)
	return nil
}

func (p *program) migrateStatus(ctx context.Context, flags migrateFlags) error {
	err := p.migrating(ctx, adapters.Existing(p.log), flags, func(m core.Migrator) error {
		version, err := m.SchemaVersion(ctx)
		if err != nil {
			return err
		}
		steps := m.Migrations()
		table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
		rows := []string{"VERSION\tNAME\tSTATE"}
		for _, step := range steps {
			state := "done"
			if step.Version > version {
				state = "pending"
			}
			rows = append(rows, fmt.Sprintf("%d\t%s\t%s", step.Version, step.Name, state))
		}
		_, err = fmt.Fprintln(table, strings.Join(rows, "\n"))
		if err := errors.Join(err, table.Flush()); err != nil {
			return err
		}
		if version < latest(steps) {
			p.notef("outbox: steps are pending: run `outbox migrate up`\n")
			return errCheck
		}
		if version > latest(steps) {
			p.notef("outbox: the tables are at version %d, which this program does not know yet\n", version)
			return errCheck
		}
		return nil
	})
	if errors.Is(err, adapters.ErrNoFile) { // no file is no step done
		p.notef("outbox: %v\n", err)
		return errCheck
	}
	return err
}

func (p *program) migratePrint(ctx context.Context, flags migrateFlags) error {
	return p.migrating(ctx, adapters.Offline(p.log), flags, func(m core.Migrator) error {
		steps := m.Migrations()
		for i := range steps {
			step := steps[i]
			text := step.Up
			if flags.down {
				step = steps[len(steps)-1-i]
				text = step.Down
			}
			p.printf("-- %d %s\n%s\n", step.Version, step.Name, strings.TrimSpace(text))
		}
		return nil
	})
}

// latest is the version of the last step.
func latest(steps []core.Migration) int {
	if len(steps) == 0 {
		return 0
	}
	return steps[len(steps)-1].Version
}
