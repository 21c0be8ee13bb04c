package kafka

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
//	kafka://user:password@host1:9092,host2:9092?acks=all&compression=zstd&tls=true&sasl=scram-sha-512
//
// User and password are those of SASL, by mechanism plain unless the parameter sasl says otherwise; encode what is
// special in a URL. The parameters are fields of [Config] in lower case with underscores: acks, unsafe_acks,
// client_id, compression, idempotence, hash and partitions (of [ordering.RecordKey]), max_message_bytes, sasl, tls,
// tls_ca_file, tls_cert_file, tls_key_file, tls_server_name, tls_insecure_skip_verify, dial_timeout, request_timeout,
// delivery_timeout, retries, retry_backoff, allow_auto_topic_creation. An unknown one is an error. All faults are
// reported at once, and none with the password.
func ParseURL(raw string) (Config, error) {
	rest, ok := strings.CutPrefix(raw, "kafka://")
	if !ok {
		return Config{}, errors.New("kafka: the URL does not begin with kafka://")
	}
	// net/url knows one host only, and its errors repeat the password.
	authority, query, _ := strings.Cut(rest, "?")
	authority = strings.TrimSuffix(authority, "/")
	var faults []error
	config, err := parseAuthority(authority)
	faults = append(faults, err)
	parameters, err := url.ParseQuery(query)
	if err != nil {
		faults = append(faults, errors.New("the parameters are not those of a URL"))
	}
	key := ordering.RecordKey{}
	setters := config.setters(&key)
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
	if key != (ordering.RecordKey{}) {
		config.Strategy = key
	}
	if err := errors.Join(append(faults, config.Validate())...); err != nil {
		return Config{}, fmt.Errorf("kafka: invalid URL: %w", err)
	}
	return *config, nil
}

// parseAuthority reads user:password@host,host.
func parseAuthority(authority string) (*Config, error) {
	config := &Config{}
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		user, password, _ := strings.Cut(authority[:at], ":")
		authority = authority[at+1:]
		var errUser, errPassword error
		user, errUser = url.PathUnescape(user)
		password, errPassword = url.PathUnescape(password)
		if errUser != nil || errPassword != nil {
			return config, errors.New("user or password are not encoded as in a URL")
		}
		config.SASL = SASL{Mechanism: MechanismPlain, Username: user, Password: Secret(password)}
	}
	if strings.Contains(authority, "/") {
		return config, errors.New("a path is not allowed: topics are those of the messages")
	}
	if authority != "" {
		config.Brokers = strings.Split(authority, ",")
	}
	return config, nil
}

// setters are the parameters by name.
func (c *Config) setters(key *ordering.RecordKey) map[string]func(string) error {
	return map[string]func(string) error{
		"acks":                      setText(&c.Acks),
		"unsafe_acks":               setBool(&c.UnsafeAcks),
		"client_id":                 setText(&c.ClientID),
		"compression":               setText(&c.Compression),
		"hash":                      setText(&key.Hash),
		"partitions":                setInt(&key.Partitions),
		"max_message_bytes":         setInt(&c.MaxMessageBytes),
		"sasl":                      setText(&c.SASL.Mechanism),
		"tls":                       setBool(&c.TLS.Enabled),
		"tls_ca_file":               setText(&c.TLS.CAFile),
		"tls_cert_file":             setText(&c.TLS.CertFile),
		"tls_key_file":              setText(&c.TLS.KeyFile),
		"tls_server_name":           setText(&c.TLS.ServerName),
		"tls_insecure_skip_verify":  setBool(&c.TLS.InsecureSkipVerify),
		"dial_timeout":              setDuration(&c.DialTimeout),
		"request_timeout":           setDuration(&c.RequestTimeout),
		"delivery_timeout":          setDuration(&c.DeliveryTimeout),
		"retries":                   setInt(&c.Retries),
		"retry_backoff":             setDuration(&c.RetryBackoff),
		"allow_auto_topic_creation": setBool(&c.AllowAutoTopicCreation),
		"idempotence": func(value string) error {
			on := true
			err := setBool(&on)(value)
			c.DisableIdempotence = !on
			return err
		},
	}
}

func setText[T ~string](field *T) func(string) error {
	return func(value string) error {
		*field = T(value)
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
