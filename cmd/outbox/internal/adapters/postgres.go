package adapters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

func parsePostgres(raw string) (Store, error) {
	cfg, err := postgresConfig(raw)
	if err != nil {
		return Store{}, err
	}
	pool, err := pgxpool.ParseConfig(cfg.DSN)
	if err != nil {
		return Store{}, err // its text hides the password
	}
	return Store{
		Remote: true,
		Open: func(ctx context.Context, log *slog.Logger) (core.Store, error) {
			cfg := cfg
			cfg.Logger = log
			return postgres.Open(ctx, cfg)
		},
		Migrations: func() ([]core.Migration, error) {
			idle, err := pgxpool.NewWithConfig(context.Background(), pool) // connects when it is first used
			if err != nil {
				return nil, err
			}
			defer idle.Close()
			store, err := postgres.New(idle, cfg)
			if err != nil {
				return nil, err
			}
			return store.Migrations(), store.Close()
		},
	}, nil
}

// postgresConfig takes the parameters that are the outbox's out of the URL, and leaves the others to the driver.
func postgresConfig(raw string) (postgres.Config, error) {
	address, err := url.Parse(raw)
	if err != nil {
		return postgres.Config{}, errors.New("postgres: not a URL; special characters in the password must be encoded")
	}
	parameters := address.Query()
	take := func(name string) string {
		value := parameters.Get(name)
		parameters.Del(name)
		return value
	}
	cfg := postgres.Config{
		Schema: take("schema"), Table: take("table"),
		AfterPublish: postgres.AfterPublish(take("after_publish")), Payload: postgres.Payload(take("payload")),
	}
	if lanes := take("lanes"); lanes != "" {
		if cfg.Lanes, err = strconv.Atoi(lanes); err != nil {
			return postgres.Config{}, fmt.Errorf("postgres: lanes: %q is not a number", lanes)
		}
	}
	address.RawQuery = parameters.Encode()
	cfg.DSN = address.String()
	if err := cfg.Validate(); err != nil {
		return postgres.Config{}, fmt.Errorf("postgres: %w", err)
	}
	return cfg, nil
}
