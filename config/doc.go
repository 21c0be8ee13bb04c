// Package config makes a store, a broker and the configuration of a dispatcher out of YAML files and the environment,
// so that another broker is a few lines of a file:
//
//	store:
//	  type: postgres
//	  postgres: {dsn: "${DATABASE_URL}"}
//	broker:
//	  type: kafka
//	  kafka: {brokers: ["kafka:9092"]}
//	dispatcher:
//	  poll_max: 500ms
//
// The library itself takes Go structs and needs none of this. The keys of a file are the fields of those structs in
// snake case (MaxMessageBytes is max_message_bytes); functions, loggers and options of an SDK have no key. Instead of a
// block, a store or broker can be one line: "broker: kafka://kafka:9092".
//
// A section "notify" has the fields of notify.Config, for a webhook that is told what needs a person: [Config.Notify].
//
// # Registry
//
// Which types there are is said by a [Registry], a plain value: a program links the adapters that it names there and no
// others, and an adapter of your own is one more entry.
//
// # Strictness
//
// [Load] reports all faults at once, a *[Fault] each with file, line and column: unknown and repeated keys with the
// nearest valid one, keys at the wrong level, blocks of another type, durations without a unit, and everything that the
// adapters' own Validate refuses. A 0 in the place of a default is refused too: it would silently mean that default.
//
// # Environment
//
// A variable overrides each key: OUTBOX_ and the path in upper case, joined by "_", list items by their number.
// OUTBOX_BROKER_KAFKA_CLIENT_ID is broker.kafka.client_id, OUTBOX_BROKER_KAFKA_BROKERS_0 the first of its brokers, and
// OUTBOX_BROKER the whole broker as a URL. Variables are taken as they are, and an empty one counts as not set. Only
// names with the prefix are looked at; one that names no key is a fault, apart from those that a platform or this
// project's tests set (see [Input]).
//
// # Secrets
//
// In a file ${VAR} is replaced by a variable, which must be set, ${VAR:-text} by the text where it is not, and
// ${file:/run/secrets/x} by the content of a file; $$ is a dollar sign. This happens to single values after the file was
// read, so that no secret can change its structure. Faults show a value as it was written, never what it became, and
// [Config] prints secrets as ***.
package config
