package sqs

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

// ParseURL reads a configuration from one line. On AWS, where the environment gives the credentials:
//
//	sqs:?region=eu-west-1&prefix=prod-
//
// A server of another make, over plain HTTP unless the parameter tls is true:
//
//	sqs://user:secret@host:port?region=us-east-1
//
// User and secret are a fixed key, encoded as in a URL; without them requests to such a server are signed with a key
// that means nothing, which local servers do not check. The parameters are fields of [Config] in lower case with
// underscores: region, endpoint, queue_name, prefix (which stands before the queue name), strategy (message-group or
// none), max_message_bytes, group_runs, concurrency, request_timeout, high_throughput (of [NewQueue]), tls. An unknown
// one is an error. All faults are reported at once, and none with the secret.
func ParseURL(raw string) (Config, error) {
	rest, ok := strings.CutPrefix(raw, "sqs:")
	if !ok {
		return Config{}, errors.New("sqs: the URL does not begin with the scheme sqs")
	}
	// net/url's errors repeat the secret.
	authority, query, _ := strings.Cut(rest, "?")
	p := urlParser{}
	err := p.authority(authority)
	parameters, errQuery := url.ParseQuery(query)
	if errQuery != nil {
		errQuery = errors.New("the parameters are not those of a URL")
	}
	faults := append([]error{err, errQuery}, p.parameters(parameters)...)
	config := p.finish()
	if err := errors.Join(append(faults, config.Validate())...); err != nil {
		return Config{}, fmt.Errorf("sqs: invalid URL: %w", err)
	}
	return config, nil
}

// urlParser gathers the parts of a URL that make a field only together.
type urlParser struct {
	config Config
	host   string
	prefix string
	tls    bool
}

// authority reads //user:secret@host:port.
func (p *urlParser) authority(text string) error {
	text = strings.TrimSuffix(text, "/")
	if text == "" {
		return nil
	}
	text, ok := strings.CutPrefix(text, "//")
	if !ok {
		return errors.New("a host is written with two slashes: sqs://host:port")
	}
	if at := strings.LastIndex(text, "@"); at >= 0 {
		user, secret, _ := strings.Cut(text[:at], ":")
		text = text[at+1:]
		var errUser, errSecret error
		user, errUser = url.PathUnescape(user)
		secret, errSecret = url.PathUnescape(secret)
		if errUser != nil || errSecret != nil {
			return errors.New("user or secret are not encoded as in a URL")
		}
		p.config.Credentials = Credentials{AccessKeyID: user, SecretAccessKey: Secret(secret)}
	}
	switch u, err := url.Parse("//" + text); {
	case strings.Contains(text, "/"):
		return errors.New("a path is not allowed: queues are named after topics")
	case err != nil || text != "" && u.Host != text || text != "" && u.Hostname() == "":
		return errors.New("the host is not one of the form host:port")
	case text == "embedded":
		return errors.New(`"embedded" is no server to connect to: start one with the package sqsfake and take its URL`)
	}
	p.host = text
	return nil
}

// parameters sets the fields that the parameters name.
func (p *urlParser) parameters(given url.Values) (faults []error) {
	setters := p.setters()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		set, known := setters[name]
		switch values := given[name]; {
		case !known:
			faults = append(faults, fmt.Errorf("unknown parameter %q; use one of %s", name,
				strings.Join(slices.Sorted(maps.Keys(setters)), ", ")))
		case len(values) > 1:
			faults = append(faults, fmt.Errorf("parameter %s is given %d times", name, len(values)))
		default:
			if err := set(values[0]); err != nil {
				faults = append(faults, fmt.Errorf("parameter %s: %w", name, err))
			}
		}
	}
	return faults
}

// setters are the parameters by name.
func (p *urlParser) setters() map[string]func(string) error {
	return map[string]func(string) error{
		"region":            setText(&p.config.Region),
		"endpoint":          setText(&p.config.Endpoint),
		"queue_name":        setText(&p.config.QueueName),
		"prefix":            setText(&p.prefix),
		"strategy":          setStrategy(&p.config.Strategy),
		"max_message_bytes": set(&p.config.MaxMessageBytes, strconv.Atoi, "a whole number"),
		"group_runs":        set(&p.config.GroupRuns, strconv.ParseBool, "true or false"),
		"concurrency":       set(&p.config.Concurrency, strconv.Atoi, "a whole number"),
		"request_timeout":   set(&p.config.RequestTimeout, time.ParseDuration, "a duration such as 5s"),
		"high_throughput":   set(&p.config.NewQueue.HighThroughput, strconv.ParseBool, "true or false"),
		"tls":               set(&p.tls, strconv.ParseBool, "true or false"),
	}
}

// finish puts the parts together.
func (p *urlParser) finish() Config {
	config := p.config
	if p.host != "" && config.Endpoint == "" {
		scheme := "http://"
		if p.tls {
			scheme = "https://"
		}
		config.Endpoint = scheme + p.host
		if config.Credentials.IsZero() {
			config.Credentials = Credentials{AccessKeyID: "outbox", SecretAccessKey: "outbox"}
		}
	}
	if p.prefix != "" {
		config.QueueName = p.prefix + config.WithDefaults().QueueName
	}
	return config
}

func setText(field *string) func(string) error {
	return func(value string) error {
		*field = value
		return nil
	}
}

func set[T any](field *T, parse func(string) (T, error), kind string) func(string) error {
	return func(value string) error {
		parsed, err := parse(value)
		if err != nil {
			return fmt.Errorf("%q is not %s", value, kind)
		}
		*field = parsed
		return nil
	}
}

func setStrategy(field *ordering.Strategy) func(string) error {
	return func(value string) error {
		switch value {
		case "message-group":
			*field = ordering.MessageGroup{}
		case "none":
			*field = ordering.None{}
		default:
			return fmt.Errorf("unknown %q; use message-group or none", value)
		}
		return nil
	}
}
