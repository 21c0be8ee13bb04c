package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
)

// statement is a query with its arguments.
type statement struct {
	query string
	args  []any
}

// execAll runs statements one after the other.
func execAll(ctx context.Context, tx *sql.Tx, statements ...statement) error {
	for _, st := range statements {
		if _, err := tx.ExecContext(ctx, st.query, st.args...); err != nil {
			return err
		}
	}
	return nil
}

// queryAll returns what scan makes of each row.
func queryAll[T any](ctx context.Context, tx *sql.Tx, scan func(*sql.Rows) (T, error), query string, args ...any,
) (all []T, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// jsonArray encodes the argument of a json_each. Nil becomes [], as null would be one row with a NULL.
func jsonArray[T any](items []T) string {
	if len(items) == 0 {
		return "[]"
	}
	return jsonText(items)
}

// jsonText encodes strings, numbers, and slices and maps of them, with which json.Marshal cannot fail.
func jsonText(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}
