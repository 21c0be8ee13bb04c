package rabbitmq

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a text that is never printed: fmt, JSON, other text encodings and slog show ***. Convert it to string to
// read it.
type Secret string

const redacted = "***"

// String returns "***".
func (Secret) String() string { return redacted }

// Format writes "***", whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText returns "***".
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns "***".
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
