package debezium

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-outbox/outbox/bench/internal/load"
)

// Table is the outbox as the EventRouter expects it.
const Table = "debezium"

// Connector is what the connector is told.
type Connector struct {
	// Kafka is the bootstrap servers.
	Kafka string
	// Postgres is the URL of the database, Schema where Table is.
	Postgres, Schema string
	// Topic gets all events.
	Topic string
	// Settings are further properties: see Tuned.
	Settings map[string]string
}

// Tuned are the settings that make the connector fast.
func Tuned() map[string]string {
	return map[string]string{
		"poll.interval.ms": "10", "max.batch.size": "8192", "max.queue.size": "32768",
		"producer.override.batch.size": "262144", "producer.override.compression.type": "lz4",
	}
}

// config is the connector's configuration in JSON.
func (c Connector) config() ([]byte, error) {
	u, err := url.Parse(c.Postgres)
	if err != nil {
		return nil, errors.New("debezium: the address of PostgreSQL is not a URL")
	}
	password, _ := u.User.Password()
	if password == "" {
		password = "none" // the connector insists on one
	}
	config := map[string]string{
		"connector.class":   "io.debezium.connector.postgresql.PostgresConnector",
		"database.hostname": u.Hostname(), "database.port": u.Port(), "database.dbname": u.Path[1:],
		"database.user": u.User.Username(), "database.password": password,
		"plugin.name": "pgoutput", "slot.name": name, "publication.name": name,
		"publication.autocreate.mode": "filtered", "snapshot.mode": "no_data", "topic.prefix": "bench",
		"table.include.list": c.Schema + "." + Table, "tombstones.on.delete": "false",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.route.topic.replacement": c.Topic,
	}
	maps.Copy(config, c.Settings)
	return json.Marshal(config)
}

// Create makes the table, and the slot does not exist afterwards.
func Create(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	if err := Forget(ctx, pool); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, `CREATE TABLE `+pgx.Identifier{schema, Table}.Sanitize()+` (
		id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL, aggregateid text NOT NULL,
		type text NOT NULL, payload jsonb NOT NULL)`)
	return err
}

// Fill writes the events first to last.
func Fill(ctx context.Context, pool *pgxpool.Pool, schema string, m load.Mix, first, last int) error {
	return load.Insert(ctx, pool, fmt.Sprintf(`INSERT INTO %s (aggregatetype, aggregateid, type, payload)
		SELECT 'order', %s, 'order.created', %s FROM`, pgx.Identifier{schema, Table}.Sanitize(), m.KeySQL(), m.BodySQL()),
		first, last)
}

// Forget drops the slot and the publication: a slot that nobody reads would fill the disk.
func Forget(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
		WHERE slot_name = $1 AND NOT active`, name)
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, "DROP PUBLICATION IF EXISTS "+pgx.Identifier{name}.Sanitize())
	return err
}
