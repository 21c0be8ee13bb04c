package adapters

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

// postgresSettings are those of a database that we connect to ourselves, so that they need a valid DSN.
type postgresSettings struct{ postgres.Config }

// WithDefaults keeps the type.
func (s postgresSettings) WithDefaults() postgresSettings {
	return postgresSettings{s.Config.WithDefaults()}
}

// Validate wants a DSN too.
func (s postgresSettings) Validate() error {
	err := s.Config.Validate()
	if s.DSN == "" {
		return errors.Join(err, &core.FieldError{Path: "DSN", Reason: "is missing; say where the database is"})
	}
	if _, dsnErr := pgxpool.ParseConfig(s.DSN); dsnErr != nil {
		// The driver's text repeats the DSN, in which it does not find every way to write a password.
		_, reason, found := strings.Cut(strings.TrimPrefix(dsnErr.Error(), "cannot parse `"+s.DSN), "`: ")
		if !found || strings.Contains(reason, "`") {
			reason = "is neither a URL nor keywords and values"
		}
		return errors.Join(err, &core.FieldError{Path: "DSN", Reason: reason})
	}
	return err
}

// postgresFromURL takes the parameters that are the outbox's out of the URL, and leaves the others to the driver.
func postgresFromURL(raw string) (s postgresSettings, err error) {
	address, err := url.Parse(raw)
	if err != nil {
		return s, errors.New("postgres: not a URL; special characters in the password must be encoded")
	}
	parameters := address.Query()
	take := func(name string) string {
		value := parameters.Get(name)
		parameters.Del(name)
		return value
	}
	s.Config = postgres.Config{
		Schema: take("schema"), Table: take("table"),
		AfterPublish: postgres.AfterPublish(take("after_publish")), Payload: postgres.Payload(take("payload")),
	}
	if lanes := take("lanes"); lanes != "" {
		if s.Lanes, err = strconv.Atoi(lanes); err != nil {
			return s, fmt.Errorf("postgres: lanes: %q is not a number", lanes)
		}
	}
	if partitioned := take("partitioned"); partitioned != "" {
		if s.Partitioned, err = strconv.ParseBool(partitioned); err != nil {
			return s, fmt.Errorf("postgres: partitioned: %q is not true or false", partitioned)
		}
	}
	address.RawQuery = parameters.Encode()
	s.DSN = address.String()
	return s, nil
}

// openPostgres connects to nothing: the first call does.
func openPostgres(ctx context.Context, s postgresSettings) (*postgres.Store, error) {
	return postgres.Open(ctx, s.Config)
}
