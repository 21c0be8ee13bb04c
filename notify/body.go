package notify

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-outbox/outbox/core"
)

// Bounds of texts, in bytes. PagerDuty takes 1024 of a summary and 255 of a dedup key.
const (
	maxReason   = 600
	maxSummary  = 1000
	maxDedupKey = 255
)

// body is a notice in the form of the receiver.
func (w *Webhook) body(now time.Time, n *notice) ([]byte, error) {
	switch w.cfg.Format {
	case Slack:
		return json.Marshal(map[string]string{"text": slackEscape.Replace(w.summary(n))})
	case PagerDuty:
		return json.Marshal(w.pagerDuty(n))
	default:
		return json.Marshal(generic{Type: n.eventType(), Timestamp: now.UTC(), Data: w.data(n)})
	}
}

// kindNow is the kind, or resumed for the end of an outage.
func (n *notice) kindNow() kind {
	if n.end {
		return resumed
	}
	return n.kind
}

// eventType is the type of a generic message.
func (n *notice) eventType() string { return "outbox." + string(n.kindNow()) }

// generic is the body of a generic message.
type generic struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      data      `json:"data"`
}

// data is what is known of a notice; what does not apply is left out.
type data struct {
	Outbox        string    `json:"outbox"`
	Summary       string    `json:"summary"`
	At            time.Time `json:"at"`
	Topic         string    `json:"topic,omitempty"`
	OutboxID      int64     `json:"outbox_id,omitempty"`
	EventID       string    `json:"event_id,omitempty"`
	AggregateType string    `json:"aggregate_type,omitempty"`
	AggregateID   string    `json:"aggregate_id,omitempty"`
	EventType     string    `json:"event_type,omitempty"`
	Broker        string    `json:"broker,omitempty"`
	Destination   string    `json:"destination,omitempty"`
	Since         time.Time `json:"since,omitzero"`
	Attempts      int       `json:"attempts,omitempty"`
	Reason        string    `json:"reason,omitempty"`
	// LeftOut is how many more events it stands for.
	LeftOut int `json:"left_out"`
}

func (w *Webhook) data(n *notice) data {
	d := n.last
	return data{
		Outbox: w.cfg.Name, Summary: w.summary(n), At: d.at.UTC(), Topic: n.topic, OutboxID: d.outboxID, EventID: d.eventID,
		AggregateType: d.aggregateType, AggregateID: d.aggregateID, EventType: d.eventType,
		Broker: n.broker, Destination: n.destination, Since: n.since.UTC(), Attempts: d.attempts, Reason: bounded(d.reason, maxReason),
		LeftOut: n.count - 1,
	}
}

// summary is a notice in one line.
func (w *Webhook) summary(n *notice) string {
	d := n.last
	where := "the broker"
	switch {
	case n.destination != "" && n.broker != "":
		where = fmt.Sprintf("destination %s of broker %s", n.destination, n.broker)
	case n.destination != "":
		where = "destination " + n.destination
	case n.broker != "":
		where = "broker " + n.broker
	}
	topic := cmp.Or(n.topic, "one of many")
	event := fmt.Sprintf("event %s of %s %s", d.eventID, d.aggregateType, d.aggregateID)
	var text string
	switch n.kindNow() {
	case parked:
		text = fmt.Sprintf("%s is parked, topic %s", event, topic)
	case blocked:
		text = fmt.Sprintf("%s blocks its aggregate, topic %s", event, topic)
	case halted:
		text = fmt.Sprintf("%s is halted by %s, which is blocked", where, event)
	case resumed:
		text = fmt.Sprintf("%s works again, it was %s since %s", where, n.kind, n.since.UTC().Format(time.RFC3339))
	case paused:
		text = fmt.Sprintf("%s is paused since %s", where, n.since.UTC().Format(time.RFC3339))
	}
	if !n.end && d.reason != "" {
		text += ": " + bounded(d.reason, maxReason)
	}
	text = bounded(w.cfg.Name+": "+text, maxSummary-100)
	if n.count > 1 {
		text += fmt.Sprintf(" (and %d more)", n.count-1)
	}
	return text
}

// bounded is a text on one line, of at most limit bytes.
func bounded(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "�"))
	if len(text) <= limit {
		return text
	}
	const mark = "..."
	cut := limit - len(mark)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}

// slackEscape keeps a text from being a link or a mention of everybody.
var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// incident is an event of the PagerDuty Events API v2.
type incident struct {
	RoutingKey string           `json:"routing_key"`
	Action     string           `json:"event_action"`
	DedupKey   string           `json:"dedup_key"`
	Payload    *incidentPayload `json:"payload,omitempty"` // of a trigger
}

type incidentPayload struct {
	Summary   string    `json:"summary"`
	Source    string    `json:"source"`
	Severity  string    `json:"severity"`
	Timestamp time.Time `json:"timestamp"`
	Component string    `json:"component,omitempty"`
	Class     string    `json:"class"`
	Details   data      `json:"custom_details"`
}

func (w *Webhook) pagerDuty(n *notice) incident {
	i := incident{RoutingKey: string(w.cfg.Secret), Action: "trigger", DedupKey: w.dedupKey(n.subject)}
	if n.end {
		i.Action = "resolve"
		return i
	}
	severity := "error"
	if n.kind == paused || n.kind == halted {
		severity = "critical"
	}
	i.Payload = &incidentPayload{
		Summary: w.summary(n), Source: w.cfg.Name, Severity: severity, Timestamp: n.last.at.UTC(),
		Component: cmp.Or(n.topic, n.destination, n.broker), Class: string(n.kind), Details: w.data(n),
	}
	return i
}

// dedupKey is the same for all messages about a subject, from all processes.
func (w *Webhook) dedupKey(s subject) string {
	key := strings.Join([]string{w.cfg.Name, string(s.kind), s.topic, s.broker, s.destination}, "/")
	if len(key) <= maxDedupKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "outbox/" + hex.EncodeToString(sum[:])
}

// sign adds the headers of Standard Webhooks. The id is that of this message, with each try another one.
func (w *Webhook) sign(req *http.Request, now time.Time, body []byte) {
	id, stamp := "msg_"+core.NewEventID(), strconv.FormatInt(now.Unix(), 10)
	req.Header.Set(headerID, id)
	req.Header.Set(headerTimestamp, stamp)
	if w.cfg.Secret == "" {
		return
	}
	key, err := signingKey(string(w.cfg.Secret))
	if err != nil { // Validate has looked
		return
	}
	req.Header.Set(headerSignature, sign(key, id, stamp, body))
}
