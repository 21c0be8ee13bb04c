package rabbitmq

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

// ParseURL reads a configuration from one line:
//
//	rabbitmq://user:password@host1:5672,host2:5672/vhost?shards=256&channels=8
//	rabbitmqs://host/?mechanism=external&tls_cert_file=client.pem&tls_key_file=client.key
//
// The schemes amqp and amqps mean the same as rabbitmq and rabbitmqs, of which the latter use TLS. Encode what is
// special in a URL; the virtual host "/" is no path or "/". The parameters are fields of [Config] in lower case with
// underscores: mechanism, connection_name, ordering ("shards" or "none"), shards and generation (of [ordering.Shards]),
// channels, window, transient, accept_unroutable (topics, separated by commas), max_message_bytes, frame_max,
// dial_timeout, confirm_timeout, heartbeat, disable_lock, tls_ca_file, tls_cert_file, tls_key_file, tls_server_name,
// tls_insecure_skip_verify, and groups: name or name:queues, separated by commas, for every topic. An unknown one is an
// error. All faults are reported at once, and none with the password.
func ParseURL(raw string) (Config, error) {
	scheme, rest, _ := strings.Cut(raw, "://")
	config := &Config{}
	switch scheme {
	case "rabbitmq", "amqp":
	case "rabbitmqs", "amqps":
		config.TLS.Enabled = true
	default:
		return Config{}, errors.New("rabbitmq: the URL does not begin with rabbitmq://, rabbitmqs://, amqp:// or amqps://")
	}
	// net/url knows one host only, and its errors repeat the password.
	rest, query, _ := strings.Cut(rest, "?")
	faults := []error{config.parseAuthority(rest)}
	parameters, err := url.ParseQuery(query)
	if err != nil {
		faults = append(faults, errors.New("the parameters are not those of a URL"))
	}
	order := order{}
	setters := config.setters(&order)
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		set, known := setters[name]
		switch values := parameters[name]; {
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
	config.Strategy, err = order.strategy()
	if err := errors.Join(append(faults, err, config.Validate())...); err != nil {
		return Config{}, fmt.Errorf("rabbitmq: invalid URL: %w", err)
	}
	return *config, nil
}

// parseAuthority reads user:password@host,host/vhost.
func (c *Config) parseAuthority(text string) error {
	// A password may hold a slash only in its encoded form, so the first one begins the virtual host.
	authority, path, _ := strings.Cut(text, "/")
	vhost, err := url.PathUnescape(path)
	if err != nil || strings.Contains(path, "/") {
		return errors.New(`the virtual host is not encoded as in a URL: write a slash in it as %2F`)
	}
	c.VHost = vhost
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		user, password, _ := strings.Cut(authority[:at], ":")
		authority = authority[at+1:]
		var errUser, errPassword error
		c.Username, errUser = url.PathUnescape(user)
		password, errPassword = url.PathUnescape(password)
		if errUser != nil || errPassword != nil {
			c.Username = ""
			return errors.New("user or password are not encoded as in a URL")
		}
		c.Password = Secret(password)
	}
	if authority != "" {
		c.Addresses = strings.Split(authority, ",")
	}
	return nil
}

// order is the strategy as parameters tell it.
type order struct {
	name   string
	shards ordering.Shards
}

func (o order) strategy() (ordering.Strategy, error) {
	switch o.name {
	case "", "shards":
		return o.shards, nil
	case "none":
		if o.shards != (ordering.Shards{}) {
			return nil, errors.New("parameters shards and generation have no meaning with ordering=none")
		}
		return ordering.None{}, nil
	default:
		return nil, fmt.Errorf("parameter ordering: unknown %q; use shards or none", o.name)
	}
}

// setters are the parameters by name.
func (c *Config) setters(order *order) map[string]func(string) error {
	return map[string]func(string) error{
		"mechanism":                setText(&c.Mechanism),
		"connection_name":          setText(&c.ConnectionName),
		"ordering":                 setText(&order.name),
		"shards":                   setInt(&order.shards.Count),
		"generation":               setInt(&order.shards.Generation),
		"channels":                 setInt(&c.Channels),
		"window":                   setInt(&c.Window),
		"transient":                setBool(&c.Transient),
		"accept_unroutable":        setList(&c.AcceptUnroutable),
		"max_message_bytes":        setInt(&c.MaxMessageBytes),
		"frame_max":                setInt(&c.FrameMax),
		"dial_timeout":             setDuration(&c.DialTimeout),
		"confirm_timeout":          setDuration(&c.ConfirmTimeout),
		"heartbeat":                setDuration(&c.Heartbeat),
		"disable_lock":             setBool(&c.DisableLock),
		"tls_ca_file":              setText(&c.TLS.CAFile),
		"tls_cert_file":            setText(&c.TLS.CertFile),
		"tls_key_file":             setText(&c.TLS.KeyFile),
		"tls_server_name":          setText(&c.TLS.ServerName),
		"tls_insecure_skip_verify": setBool(&c.TLS.InsecureSkipVerify),
		"groups": func(value string) error {
			groups, err := parseGroups(value)
			c.Groups = map[string][]Group{EveryTopic: groups}
			return err
		},
	}
}

// parseGroups reads name:queues,name.
func parseGroups(value string) ([]Group, error) {
	var groups []Group
	for _, text := range strings.Split(value, ",") {
		name, queues, counted := strings.Cut(text, ":")
		g := Group{Name: name}
		if counted {
			if err := setInt(&g.Queues)(queues); err != nil {
				return nil, err
			}
		}
		groups = append(groups, g)
	}
	return groups, nil
}

func setText[T ~string](field *T) func(string) error {
	return func(value string) error {
		*field = T(value)
		return nil
	}
}

func setList(field *[]string) func(string) error {
	return func(value string) error {
		*field = strings.Split(value, ",")
		return nil
	}
}

func setBool(field *bool) func(string) error {
	return func(value string) error {
		b, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%q is not true or false", value)
		}
		*field = b
		return nil
	}
}

func setInt(field *int) func(string) error {
	return func(value string) error {
		n, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", value)
		}
		*field = n
		return nil
	}
}

func setDuration(field *time.Duration) func(string) error {
	return func(value string) error {
		d, err := time.ParseDuration(value)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 5s", value)
		}
		*field = d
		return nil
	}
}
