package rabbitmq

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"unicode"
)

// maxShortString is AMQP's limit of names, routing keys and most properties, in bytes.
const maxShortString = 255

// maxGroupName keeps derived names short.
const maxGroupName = 64

// QueueName is the name of a queue of a consumer group, "<topic>.<group>.<generation>.<n>" with n from 0 to
// Group.Queues-1. As a group's name has no dot, no two queues have the same name. What is too long for AMQP is
// shortened: the topic is cut, and a tilde and a part of its SHA-256 follow.
func QueueName(topic, group string, generation, n int) string {
	return derivedName(topic, "."+group+"."+strconv.Itoa(generation)+"."+strconv.Itoa(n))
}

// DeadLetterName is the name of a group's own dead-letter exchange and queue, "<topic>.<group>.dead", shortened as
// that of a queue.
func DeadLetterName(topic, group string) string { return derivedName(topic, "."+group+".dead") }

// derivedName is topic and suffix, within the limit.
func derivedName(topic, suffix string) string {
	if len(topic)+len(suffix) <= maxShortString {
		return topic + suffix
	}
	const digits = 16
	sum := sha256.Sum256([]byte(topic))
	cut := maxShortString - len(suffix) - 1 - digits
	for cut > 0 && topic[cut]&0xC0 == 0x80 { // not within a character
		cut--
	}
	return topic[:cut] + "~" + hex.EncodeToString(sum[:])[:digits] + suffix
}

// badGroupName says what is wrong with a group's name, or returns "".
func badGroupName(name string) string {
	if name == "" {
		return "is empty"
	}
	if len(name) > maxGroupName {
		return fmt.Sprintf("has %d bytes, the limit is %d", len(name), maxGroupName)
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return "may only have letters, digits, '_' and '-'"
		}
	}
	return ""
}

// badExchangeName says what RabbitMQ has against an exchange of ours, or returns "".
func badExchangeName(name string) string {
	switch {
	case name == "":
		return "is empty: that is the default exchange, which takes routing keys for names of queues"
	case len(name) > maxShortString:
		return fmt.Sprintf("has %d bytes, the limit is %d", len(name), maxShortString)
	case len(name) >= 4 && name[:4] == "amq.":
		return `begins with "amq.", which RabbitMQ reserves`
	}
	for _, r := range name {
		if r == unicode.ReplacementChar || unicode.IsControl(r) { // the server drops line breaks
			return "has control characters or is no valid UTF-8"
		}
	}
	return ""
}
