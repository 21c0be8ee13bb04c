// Package adapters is the one place that knows every store and broker, each by the scheme of its URL. A new adapter is
// one more entry in a list here.
package adapters

import (
	"errors"
	"fmt"
	"strings"
)

// Schemes of URLs, as users write them.
const (
	storeForms  = "sqlite:FILE, postgres://HOST/DATABASE, memory:"
	brokerForms = "kafka://HOST:PORT, memory:"
)

// ErrNoMigrations says that a store keeps no tables.
var ErrNoMigrations = errors.New("this store has no tables to migrate")

// schemeOf returns the scheme of a URL. The text of its error never shows the URL, which may hold a password.
func schemeOf(raw, forms string) (string, error) {
	scheme, _, found := strings.Cut(raw, ":")
	switch {
	case raw == "":
		return "", fmt.Errorf("is required: one of %s", forms)
	case !found:
		return "", fmt.Errorf("is not a URL; known are %s", forms)
	}
	return strings.ToLower(scheme), nil
}

func unknownScheme(scheme, forms string) error {
	return fmt.Errorf("unknown scheme %q; known are %s", scheme, forms)
}
