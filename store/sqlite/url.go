package sqlite

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// ParseURL reads a Config from its short form: "sqlite:demo.db" for a relative file name, "sqlite:///var/lib/app.db"
// for an absolute one. Parameters: table, payload, after_publish, busy_timeout (a Go duration) and synchronous. An
// unknown or repeated parameter is an error, and so is a value that Config.Validate refuses.
func ParseURL(raw string) (Config, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return Config{}, fmt.Errorf("sqlite: url: %w", errors.Unwrap(err)) // the text of *url.Error repeats the url
	}
	if u.Scheme != "sqlite" {
		return Config{}, fmt.Errorf("sqlite: url: scheme %q; use sqlite:file.db or sqlite:///absolute/file.db", u.Scheme)
	}
	if u.Host != "" || u.User != nil {
		return Config{}, fmt.Errorf("sqlite: url: %q stands where a host would; "+
			"use sqlite:file.db or sqlite:///absolute/file.db", u.Host)
	}
	cfg := Config{Path: u.Path}
	if u.Opaque != "" {
		if cfg.Path, err = url.PathUnescape(u.Opaque); err != nil {
			return Config{}, fmt.Errorf("sqlite: url: file name: %w", err)
		}
	}
	if cfg.Path == "" || u.Fragment != "" {
		return Config{}, errors.New("sqlite: url: no file name, or a # in it; write # as %23")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Config{}, fmt.Errorf("sqlite: url: parameters: %w", err)
	}
	for name, values := range query {
		if len(values) != 1 {
			return Config{}, fmt.Errorf("sqlite: url: parameter %q is there %d times", name, len(values))
		}
		if err := cfg.setParameter(name, values[0]); err != nil {
			return Config{}, fmt.Errorf("sqlite: url: %w", err)
		}
	}
	if err := cfg.Validate(); err != nil {
		return Config{}, fmt.Errorf("sqlite: url: %w", err)
	}
	return cfg, nil
}

// parameters are the names that setParameter knows.
var parameters = []string{"after_publish", "busy_timeout", "payload", "synchronous", "table"}

func (c *Config) setParameter(name, value string) (err error) {
	switch name {
	case "table":
		c.Table = value
	case "payload":
		c.Payload = Payload(value)
	case "after_publish":
		c.AfterPublish = AfterPublish(value)
	case "synchronous":
		c.Synchronous = Synchronous(value)
	case "busy_timeout":
		if c.BusyTimeout, err = time.ParseDuration(value); err != nil {
			return fmt.Errorf("busy_timeout: %w", err)
		}
	default:
		return fmt.Errorf("unknown parameter %q; known are %s", name, strings.Join(parameters, ", "))
	}
	return nil
}
