package notify

import (
	"fmt"
	"io"
	"log/slog"
	"net/url"
)

const hidden = "***"

// Secret is a text that is never printed: fmt, JSON, other text encodings and slog show ***. Convert it to string to
// read it.
type Secret string

// String returns "***".
func (Secret) String() string { return hidden }

// Format writes "***", whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalText returns "***".
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue returns "***".
func (Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// URL is an address of which only the scheme and host are printed: the path or query may hold a token, and so may the
// user. Convert it to string to read it.
type URL string

// String returns what may be shown, for example "https://hooks.slack.com/***".
func (u URL) String() string {
	at, err := url.Parse(string(u))
	if err != nil || at.Host == "" {
		return hidden
	}
	return at.Scheme + "://" + at.Host + "/" + hidden
}

// Format writes what String returns, whatever the verb.
func (u URL) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, u.String()) }

// MarshalText returns what String returns.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// LogValue is what String returns.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }
