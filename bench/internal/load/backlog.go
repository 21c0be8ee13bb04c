package load

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Mix is how events spread over aggregates.
type Mix string

// The mixes.
const (
	Uniform Mix = "uniform" // 1,000 aggregates
	Hot     Mix = "hot"     // 999 aggregates, and one with a fifth of all events
)

// PayloadBytes is the size of each payload.
const PayloadBytes = 420

// padBytes leaves room for the number, the key and the names of the fields.
const padBytes = PayloadBytes - 45

// KeySQL is the aggregate id of event g.
func (m Mix) KeySQL() string {
	if m == Hot {
		return "CASE WHEN g % 5 = 0 THEN 'hot' ELSE 'ord_' || g % 999 END"
	}
	return "'ord_' || g % 1000"
}

// BodySQL is the payload of event g as jsonb.
func (m Mix) BodySQL() string {
	return fmt.Sprintf("jsonb_build_object('n', g, 'key', %s, 'pad', repeat('x', %d))", m.KeySQL(), padBytes)
}

// Body is the payload of event n of an aggregate, as it leaves the database.
func Body(n int, key string) []byte {
	return fmt.Appendf(nil, `{"n": %d, "key": %q, "pad": "%0*d"}`, n, key, padBytes, 0)
}

// Key is the aggregate id of event n in the uniform mix.
func Key(n int) string { return fmt.Sprint("ord_", n%1000) }

// chunk is how many rows one transaction of a backlog has.
const chunk = 50_000

// Insert writes the events first to last into a table: insert is "INSERT INTO ... SELECT ... FROM" without its source,
// which gives g. Its arguments are $3 and on.
func Insert(ctx context.Context, pool *pgxpool.Pool, insert string, first, last int, args ...any) error {
	for ; first <= last; first += chunk {
		all := append([]any{first, min(first+chunk-1, last)}, args...)
		if _, err := pool.Exec(ctx, insert+" generate_series($1::int, $2::int) g ORDER BY g", all...); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	return nil
}
