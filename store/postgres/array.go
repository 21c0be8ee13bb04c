package postgres

import (
	"encoding/hex"
	"strconv"
	"strings"
)

var arrayEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// arrayOf writes an array as PostgreSQL reads it, with NULL for nil.
func arrayOf(values []*string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		if v == nil {
			b.WriteString("NULL")
			continue
		}
		b.WriteByte('"')
		_, _ = arrayEscaper.WriteString(&b, *v) // a Builder does not fail
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

func arrayOfTexts(values []string) string {
	pointers := make([]*string, len(values))
	for i := range values {
		pointers[i] = &values[i]
	}
	return arrayOf(pointers)
}

func arrayOfBytes(values [][]byte) string {
	texts := make([]*string, len(values))
	for i, v := range values {
		if v != nil {
			text := `\x` + hex.EncodeToString(v)
			texts[i] = &text
		}
	}
	return arrayOf(texts)
}

func arrayOfInts(values []int64) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = strconv.FormatInt(v, 10)
	}
	return "{" + strings.Join(texts, ",") + "}"
}
