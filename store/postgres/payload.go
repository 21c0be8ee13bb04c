package postgres

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/go-outbox/outbox/core"
)

// maxJSONBExponent bounds the decimal exponents that jsonb takes for sure (its numbers end near 131072 digits).
const maxJSONBExponent = 16000

// checkPayload is the table's own rule for a message. Everything that the column would refuse is found here, as an
// error of the database would end the user's transaction.
func (s *Store) checkPayload(m *core.Message) error {
	if m.Payload == nil || s.cfg.Payload == Bytes {
		return nil
	}
	bad := func(reason string) error {
		return &core.InvalidMessageError{EventID: m.EventID, Field: "Payload", Reason: reason}
	}
	switch {
	case !json.Valid(m.Payload):
		return bad("is not valid JSON; send JSON or nil, or create the table with Payload: postgres.Bytes")
	case !utf8.Valid(m.Payload):
		return bad("is not valid UTF-8")
	case s.cfg.Payload == JSON:
		return nil
	}
	if reason := notJSONB(m.Payload); reason != "" {
		return bad(reason + ", which jsonb cannot hold; create the table with Payload: postgres.JSON to keep it")
	}
	return nil
}

// notJSONB says what in valid JSON jsonb does not take, or returns "".
func notJSONB(text []byte) string {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			end, reason := scanString(text, i+1)
			if reason != "" {
				return reason
			}
			i = end
		case 'e', 'E':
			if end, tooLarge := scanExponent(text, i+1); tooLarge {
				return "has a number with the exponent " + string(text[i+1:min(end, i+12)])
			}
		}
	}
	return ""
}

// scanString looks at the escapes of a string that begins at i and returns the place of its closing quote.
func scanString(text []byte, i int) (int, string) {
	for ; text[i] != '"'; i++ {
		if text[i] != '\\' {
			continue
		}
		i++
		if text[i] != 'u' {
			continue
		}
		unit := hexUnit(text[i+1:])
		switch {
		case unit == 0:
			return i, `has the escape \u0000`
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return i, "has an unpaired surrogate escape"
		case unit >= 0xD800 && unit <= 0xDBFF:
			next := text[i+5:]
			if !bytes.HasPrefix(next, []byte(`\u`)) || hexUnit(next[2:]) < 0xDC00 || hexUnit(next[2:]) > 0xDFFF {
				return i, "has an unpaired surrogate escape"
			}
			i += 6
		}
		i += 4
	}
	return i, ""
}

func hexUnit(text []byte) uint64 {
	unit, _ := strconv.ParseUint(string(text[:4]), 16, 16) // valid JSON has four digits here
	return unit
}

// scanExponent reads the exponent of a number and returns its end; letters of true and false have none.
func scanExponent(text []byte, i int) (int, bool) {
	start := i
	for i < len(text) && (text[i] == '+' || text[i] == '-' || text[i] >= '0' && text[i] <= '9') {
		i++
	}
	if start == i {
		return i, false
	}
	exponent, err := strconv.Atoi(string(bytes.TrimPrefix(text[start:i], []byte("+"))))
	return i, err != nil || exponent > maxJSONBExponent || exponent < -maxJSONBExponent
}
