package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-outbox/outbox/cmd/outbox/internal/adapters"
	"github.com/go-outbox/outbox/config"
	"github.com/go-outbox/outbox/core"
)

// settings are the flags that say what to work with.
type settings struct {
	files []string
	flags *pflag.FlagSet
}

// keys are the keys of a configuration that flags set, by the name of the flag.
func keys() map[string]string {
	return map[string]string{
		"store":            "store",
		"broker":           "broker",
		"name":             "dispatcher.name",
		"fetch-size":       "dispatcher.fetch_size",
		"max-attempts":     "dispatcher.retry.max_attempts",
		"lease-ttl":        "dispatcher.lease_ttl",
		"shutdown-timeout": "dispatcher.shutdown_timeout",
	}
}

func (s *settings) addStore(flags *pflag.FlagSet) {
	s.flags = flags
	flags.StringArrayVarP(&s.files, "config", "c", nil, "YAML file; given again, the later one is laid over the earlier")
	flags.String("store", "", "URL of the store (default $"+envStore+"): "+adapters.StoreForms)
}

func (s *settings) addAll(flags *pflag.FlagSet) {
	s.addStore(flags)
	flags.String("broker", "", "URL of the broker (default $"+envBroker+"): "+adapters.BrokerForms)
	flags.String("name", "outbox", "name in logs")
	flags.Int("fetch-size", core.DefaultFetchSize, "events per fetch")
	flags.Int("max-attempts", core.DefaultMaxAttempts, "failed attempts after which an event is parked")
	flags.Duration("lease-ttl", core.DefaultLeaseTTL, "time until another process takes over after a crash")
	flags.Duration("shutdown-timeout", core.DefaultShutdownTimeout, "time for what is in flight after a signal")
}

// load reads files, environment and flags. With partial there need be no broker.
func (s *settings) load(ctx context.Context, registry config.Registry, partial bool) (*config.Config, error) {
	in := config.Input{Files: s.files, Environ: os.Environ(), Partial: partial}
	paths := keys()
	s.flags.VisitAll(func(f *pflag.Flag) {
		if path, ok := paths[f.Name]; ok && f.Changed && f.Value.String() != "" {
			in.Settings = append(in.Settings, config.Setting{Path: path, Value: f.Value.String(), Origin: "--" + f.Name})
		}
	})
	loaded, err := config.Load(ctx, registry, in)
	switch {
	case err == nil && partial && loaded.StoreType() == "":
		err = errors.New("store is missing")
	case err == nil:
		return loaded, nil
	}
	if len(s.files) == 0 {
		err = fmt.Errorf("%w\nURLs: --store %s; --broker %s", err, adapters.StoreForms, adapters.BrokerForms)
	}
	return nil, usage(err)
}

func (p *program) configCommand() *cobra.Command {
	var s settings
	group := &cobra.Command{
		Use:   "config",
		Short: "Check and show the configuration",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	s.addAll(group.PersistentFlags())
	command := func(use, short string, show func(*config.Config) error) {
		group.AddCommand(&cobra.Command{
			Use: use, Short: short, Args: noArguments,
			RunE: func(cmd *cobra.Command, _ []string) error {
				loaded, err := s.load(cmd.Context(), adapters.Registry(p.log), false)
				if err != nil {
					return err
				}
				return show(loaded)
			},
		})
	}
	command("validate", "Report every fault, exit with 2 if there is one; connects to nothing", func(*config.Config) error {
		sources := slices.Concat(s.files, []string{"environment"})
		p.notef("no faults in %s\n", strings.Join(sources, ", "))
		return nil
	})
	command("print", "Show the effective configuration, with the origin of each value and without secrets",
		func(loaded *config.Config) error { return loaded.Print(p.out) })
	return group
}
