package sqs

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/go-outbox/outbox/core"
)

// The attributes that this package adds to those of [core.Record.WireHeaders].
const (
	// AttributeEncoding says how the payload was put into the body when it is not the body itself: "base64", or "nil" and
	// "empty" for payloads without any byte, whose body is that word.
	AttributeEncoding = "outbox_encoding"
	// AttributeHeaders holds the headers that have no attribute of their own, as a JSON object of strings: those that
	// are too many, empty, or not allowed by SQS as they are.
	AttributeHeaders = "outbox_headers"
)

const (
	// maxAttributes is how many of the 10 attributes of a message we use. The rest is for those that tracing agents add
	// on the way (up to 3 of OpenTelemetry: traceparent, tracestate, baggage), which would be refused otherwise.
	maxAttributes     = 7
	maxAttributeBytes = 256 // of an attribute's name
	stringType        = "String"

	encodingBase64 = "base64"
	encodingNil    = "nil"
	encodingEmpty  = "empty"
)

// encodeBody returns a body that SQS takes, and the encoding if it is not the payload itself. SQS takes the characters
// of XML 1.0 and at least one of them.
func encodeBody(payload []byte) (body, encoding string) {
	switch {
	case payload == nil:
		return encodingNil, encodingNil
	case len(payload) == 0:
		return encodingEmpty, encodingEmpty
	}
	if body = string(payload); isText(body) {
		return body, ""
	}
	return base64.StdEncoding.EncodeToString(payload), encodingBase64
}

// encodeAttributes returns the headers of a record as attributes. The outbox's own come first, so that consumers and
// filters find them under their names; what does not fit goes into one attribute as JSON.
func encodeAttributes(r *core.Record, encoding string) (map[string]types.MessageAttributeValue, error) {
	packed := map[string]string{}
	own := make([][2]string, 0, maxAttributes+1)
	for name, value := range r.WireHeaders() {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, fmt.Errorf("header %q is not valid UTF-8 in name and value", name)
		}
		if len(own) <= maxAttributes && isAttributeName(name) && value != "" && isText(value) {
			own = append(own, [2]string{name, value})
		} else {
			packed[name] = value
		}
	}
	room := maxAttributes
	if encoding != "" {
		room--
	}
	if len(packed) > 0 || len(own) > room {
		room--
		for _, header := range own[min(room, len(own)):] {
			packed[header[0]] = header[1]
		}
		own = own[:min(room, len(own))]
	}
	attributes := make(map[string]types.MessageAttributeValue, maxAttributes)
	for _, header := range own {
		attributes[header[0]] = attribute(header[1])
	}
	if len(packed) > 0 {
		attributes[AttributeHeaders] = attribute(pack(packed))
	}
	if encoding != "" {
		attributes[AttributeEncoding] = attribute(encoding)
	}
	return attributes, nil
}

func attribute(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String(stringType), StringValue: &value}
}

// pack writes headers as JSON of characters that SQS takes: encoding/json escapes all that it does not, but for two.
func pack(headers map[string]string) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(headers) // strings in a buffer never fail
	text := strings.TrimSuffix(b.String(), "\n")
	return strings.NewReplacer("\uFFFE", `\ufffe`, "\uFFFF", `\uffff`).Replace(text)
}

// isAttributeName says whether SQS takes the name, and we do not use it ourselves.
func isAttributeName(name string) bool {
	lower := strings.ToLower(name)
	switch {
	case name == "" || len(name) > maxAttributeBytes,
		name == AttributeEncoding || name == AttributeHeaders,
		strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon."),
		strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.Contains(name, ".."):
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return r != '.' && illegalInName(r) })
}

// isText says whether SQS takes s as it is: #x9, #xA, #xD, #x20 to #xD7FF, #xE000 to #xFFFD, #x10000 to #x10FFFF.
func isText(s string) bool {
	for _, r := range s {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return false
		}
	}
	return utf8.ValidString(s)
}

// sizeOf is what counts against the limits of SQS.
func sizeOf(body string, attributes map[string]types.MessageAttributeValue) int {
	size := len(body)
	for name, value := range attributes {
		size += len(name) + len(aws.ToString(value.DataType)) + len(aws.ToString(value.StringValue))
	}
	return size
}

// Message is a message as it was published.
type Message struct {
	// EventID is the id of the event, the same in all its copies.
	EventID string
	// GroupID is the message group; empty for standard queues, and when the attribute MessageGroupId was not asked for.
	GroupID string
	// Payload is the payload byte for byte, nil and empty told apart.
	Payload []byte
	// Headers are those of [core.Record.WireHeaders], and text attributes that others have added on the way.
	Headers map[string]string
}

// Decode reads a message that a [Broker] has sent. The message must have been received with all its message attributes
// (MessageAttributeNames: "All"). An error says that the message is not one of ours, or was changed.
func Decode(m types.Message) (Message, error) {
	out := Message{
		GroupID: m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)],
		Headers: make(map[string]string, len(m.MessageAttributes)),
	}
	packed, encoding := "", ""
	for name, value := range m.MessageAttributes {
		switch text := aws.ToString(value.StringValue); {
		case name == AttributeHeaders:
			packed = text
		case name == AttributeEncoding:
			encoding = text
		case value.StringValue != nil:
			out.Headers[name] = text
		}
	}
	if packed != "" {
		var more map[string]string
		if err := json.Unmarshal([]byte(packed), &more); err != nil {
			return Message{}, fmt.Errorf("sqs: decode message %s: attribute %s: %w", aws.ToString(m.MessageId),
				AttributeHeaders, err)
		}
		maps.Copy(out.Headers, more)
	}
	payload, err := decodeBody(aws.ToString(m.Body), encoding)
	if err != nil {
		return Message{}, fmt.Errorf("sqs: decode message %s: %w", aws.ToString(m.MessageId), err)
	}
	out.Payload, out.EventID = payload, out.Headers[core.HeaderEventID]
	return out, nil
}

func decodeBody(body, encoding string) ([]byte, error) {
	switch encoding {
	case "":
		return []byte(body), nil
	case encodingNil:
		return nil, nil
	case encodingEmpty:
		return []byte{}, nil
	case encodingBase64:
		payload, err := base64.StdEncoding.DecodeString(body)
		if err != nil {
			return nil, fmt.Errorf("the body is not the base64 that attribute %s says: %w", AttributeEncoding, err)
		}
		return payload, nil
	default:
		return nil, fmt.Errorf("attribute %s: unknown encoding %q", AttributeEncoding, encoding)
	}
}
