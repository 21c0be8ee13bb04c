package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
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

// Mechanism is how SASL authenticates.
type Mechanism string

// The mechanisms that SASL supports.
const (
	MechanismPlain       Mechanism = "plain"
	MechanismScramSHA256 Mechanism = "scram-sha-256"
	MechanismScramSHA512 Mechanism = "scram-sha-512"
	// MechanismOAuthBearer takes the password of its Credentials as the token.
	MechanismOAuthBearer Mechanism = "oauthbearer"
)

// SASL are the settings of authentication. The zero value means none.
type SASL struct {
	// Mechanism chooses how. Empty means no authentication.
	Mechanism Mechanism
	// Username and Password are the credentials.
	Username string
	Password Secret
	// Provider, when not nil, is asked for credentials instead: at each new connection and each time a session has to
	// be renewed, so that credentials that expire work. It is called from several goroutines at once. Its errors are
	// an outage of the broker to the dispatcher: they cost no message an attempt.
	Provider func(context.Context) (Credentials, error)
}

// Credentials are what a [SASL].Provider returns.
type Credentials struct {
	// Username is ignored by MechanismOAuthBearer.
	Username string
	// Password is the token with MechanismOAuthBearer.
	Password Secret
}

func (s SASL) validate() (faults []error) {
	switch s.Mechanism {
	case "":
		if s.Username != "" || s.Password != "" || s.Provider != nil {
			faults = append(faults, fault("SASL.Mechanism", "is empty although credentials are given; use plain, "+
				"scram-sha-256, scram-sha-512 or oauthbearer"))
		}
		return faults
	case MechanismPlain, MechanismScramSHA256, MechanismScramSHA512, MechanismOAuthBearer:
	default:
		faults = append(faults, fault("SASL.Mechanism", fmt.Sprintf(
			"unknown %q; use plain, scram-sha-256, scram-sha-512 or oauthbearer", s.Mechanism)))
	}
	if s.Provider == nil && s.Username == "" && s.Mechanism != MechanismOAuthBearer {
		faults = append(faults, fault("SASL.Username", "is empty; give it with a Password, or a Provider"))
	}
	if s.Provider == nil && s.Password == "" {
		faults = append(faults, fault("SASL.Password", "is empty; give it, or a Provider"))
	}
	return faults
}

// credentials asks the provider, or returns what is configured.
func (s SASL) credentials(ctx context.Context) (Credentials, error) {
	if s.Provider == nil {
		return Credentials{Username: s.Username, Password: s.Password}, nil
	}
	c, err := s.Provider(ctx)
	if err != nil {
		return c, &credentialsError{err}
	}
	return c, nil
}

// credentialsError marks what the user's own provider returned, to tell it from a refusal by the broker.
type credentialsError struct{ err error }

func (e *credentialsError) Error() string {
	return "the SASL credentials provider failed: " + e.err.Error()
}
func (e *credentialsError) Unwrap() error { return e.err }

// mechanism returns what the client authenticates with, or nil for none.
func (s SASL) mechanism() (sasl.Mechanism, error) {
	scramAuth := func(ctx context.Context) (scram.Auth, error) {
		c, err := s.credentials(ctx)
		return scram.Auth{User: c.Username, Pass: string(c.Password)}, err
	}
	switch s.Mechanism {
	case "":
		return nil, nil //nolint:nilnil // no mechanism is what was asked for
	case MechanismPlain:
		return plain.Plain(func(ctx context.Context) (plain.Auth, error) {
			c, err := s.credentials(ctx)
			return plain.Auth{User: c.Username, Pass: string(c.Password)}, err
		}), nil
	case MechanismScramSHA256:
		return scram.Sha256(scramAuth), nil
	case MechanismScramSHA512:
		return scram.Sha512(scramAuth), nil
	case MechanismOAuthBearer:
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			c, err := s.credentials(ctx)
			return oauth.Auth{Token: string(c.Password)}, err
		}), nil
	default:
		return nil, errors.New("unknown SASL mechanism")
	}
}
