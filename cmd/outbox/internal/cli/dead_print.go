package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-outbox/outbox/core"
)

// maxCell is how many characters of a text a table shows.
const maxCell = 100

// printDead shows one page of dead letters.
func (p *program) printDead(dead []core.DeadLetter, flags *deadFlags, head bool) error {
	if flags.json {
		return p.printDeadJSON(dead, flags.payload)
	}
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	if head {
		_, _ = fmt.Fprintln(table, "ID\tEVENT\tTOPIC\tAGGREGATE\tTYPE\tATTEMPTS\tFIRST FAILED\tREASON")
	}
	for i := range dead {
		r := dead[i].Record
		cells := []string{
			strconv.FormatInt(r.ID, 10), cell(r.EventID), cell(r.Topic), cell(r.AggregateType + "/" + r.AggregateID),
			cell(r.EventType), strconv.Itoa(r.Attempts), timeCell(r.FirstFailedAt), cell(dead[i].Reason),
		}
		_, _ = fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	return table.Flush()
}

// cell is a text for a table: on one line, of bounded length, and without characters that a terminal acts upon.
func cell(text string) string {
	if text == "" {
		return "-"
	}
	var b strings.Builder
	n := 0
	for i, r := range text {
		if n++; n > maxCell {
			b.WriteString("...")
			break
		}
		switch _, size := utf8.DecodeRuneInString(text[i:]); {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

func timeCell(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// deadJSON is a dead letter as it is printed.
type deadJSON struct {
	ID            int64             `json:"id"`
	EventID       string            `json:"event_id"`
	State         string            `json:"state"`
	Reason        string            `json:"reason"`
	Since         time.Time         `json:"since,omitzero"`
	Topic         string            `json:"topic,omitempty"`
	AggregateType string            `json:"aggregate_type"`
	AggregateID   string            `json:"aggregate_id"`
	EventType     string            `json:"event_type"`
	Attempts      int               `json:"attempts"`
	Replay        int               `json:"replay"`
	CreatedAt     time.Time         `json:"created_at"`
	FirstFailedAt time.Time         `json:"first_failed_at,omitzero"`
	Headers       map[string]string `json:"headers,omitempty"`
	// Payload is the payload itself, its numbers as they are; PayloadBase64 takes its place when it is not JSON.
	Payload       json.RawMessage `json:"payload,omitempty"`
	PayloadBase64 []byte          `json:"payload_base64,omitempty"`
}

func (p *program) printDeadJSON(dead []core.DeadLetter, payload bool) error {
	var page bytes.Buffer
	encoder := json.NewEncoder(&page)
	encoder.SetEscapeHTML(false)
	var faults []error
	for i := range dead {
		r := dead[i].Record
		line := deadJSON{
			ID: r.ID, EventID: r.EventID, State: string(dead[i].State), Reason: dead[i].Reason, Since: dead[i].Since,
			Topic: r.Topic, AggregateType: r.AggregateType, AggregateID: r.AggregateID, EventType: r.EventType,
			Attempts: r.Attempts, Replay: r.Replay, CreatedAt: r.CreatedAt, FirstFailedAt: r.FirstFailedAt, Headers: r.Headers,
		}
		switch {
		case !payload:
		case utf8.Valid(r.Payload) && json.Valid(r.Payload):
			line.Payload = r.Payload
		default:
			line.PayloadBase64 = r.Payload
		}
		faults = append(faults, encoder.Encode(line))
	}
	_, err := page.WriteTo(p.out)
	return errors.Join(append(faults, err)...)
}
