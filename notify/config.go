package notify

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/go-outbox/outbox/core"
)

// Format is the form of a message.
type Format string

const (
	// Generic is signed JSON; see the package comment.
	Generic Format = "generic"
	// Slack is an incoming webhook of Slack, or of what understands the same: a line of text.
	Slack Format = "slack"
	// PagerDuty is the Events API v2: an incident for each alert, resolved when what was paused works again.
	PagerDuty Format = "pagerduty"
)

// PagerDutyURL is where PagerDuty takes events.
const PagerDutyURL = "https://events.pagerduty.com/v2/enqueue"

// Defaults of [Config].
const (
	DefaultName        = "outbox"
	DefaultPausedFor   = 5 * time.Minute
	DefaultMinInterval = time.Minute
	DefaultTimeout     = 10 * time.Second
)

// Config says whom to tell, and how often.
type Config struct {
	// URL is where messages are posted, http or https. Required, but for PagerDuty, where empty means [PagerDutyURL].
	URL URL
	// Secret is the signing key of Generic ("whsec_" and base64 of 24 to 64 bytes, the prefix may be left out; empty
	// means not signed, and [Webhook.Run] warns of it) and the integration key of PagerDuty (required). Slack has none.
	Secret Secret
	// Format is the form of messages; empty means Generic.
	Format Format
	// Name names this outbox in messages; empty means "outbox".
	Name string
	// PausedFor is how long a destination or broker has been paused before that is told; 0 means 5 minutes.
	PausedFor time.Duration
	// MinInterval is the shortest time between two messages of one alert; 0 means a minute.
	MinInterval time.Duration
	// Timeout bounds one request, and how long Run goes on after its context ended, to tell what was reported before;
	// 0 means 10 s.
	Timeout time.Duration
	// Client sends the requests; nil means one that follows no redirects. It stays the caller's.
	Client *http.Client
	// Logger gets what could not be told; nil means slog.Default().
	Logger *slog.Logger
}

// WithDefaults returns a copy with the defaults in place of zero fields.
func (c Config) WithDefaults() Config {
	if c.Format == "" {
		c.Format = Generic
	}
	if c.URL == "" && c.Format == PagerDuty {
		c.URL = PagerDutyURL
	}
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.PausedFor == 0 {
		c.PausedFor = DefaultPausedFor
	}
	if c.MinInterval == 0 {
		c.MinInterval = DefaultMinInterval
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate reports everything that is wrong, a *[core.FieldError] for each fault, joined. It repeats no secret.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var faults []error
	bad := func(path, format string, args ...any) {
		faults = append(faults, &core.FieldError{Path: path, Reason: fmt.Sprintf(format, args...)})
	}
	known := c.Format == Generic || c.Format == Slack || c.Format == PagerDuty
	if !isWebURL(string(c.URL)) && (known || c.URL != "") { // a misspelt format may be the one that needs no URL
		bad("URL", "must be the http or https URL of the webhook")
	}
	switch c.Format {
	case Generic:
		if _, err := signingKey(string(c.Secret)); c.Secret != "" && err != nil {
			bad("Secret", "must be %s and the base64 of 24 to 64 random bytes: `openssl rand -base64 32`", secretPrefix)
		}
	case Slack:
		if c.Secret != "" {
			bad("Secret", "Slack has none; its URL is the secret")
		}
	case PagerDuty:
		if c.Secret == "" {
			bad("Secret", "is missing; give the integration key of the PagerDuty service")
		}
	default:
		bad("Format", "unknown %q; use %s, %s or %s", c.Format, Generic, Slack, PagerDuty)
	}
	for path, d := range map[string]time.Duration{
		"PausedFor": c.PausedFor, "MinInterval": c.MinInterval, "Timeout": c.Timeout,
	} {
		if d < 0 {
			bad(path, "%s is negative", d)
		}
	}
	return errors.Join(faults...)
}

func isWebURL(text string) bool {
	at, err := url.Parse(text)
	return err == nil && at.Host != "" && (at.Scheme == "https" || at.Scheme == "http")
}
