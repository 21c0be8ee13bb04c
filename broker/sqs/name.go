package sqs

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	maxNameBytes = 80 // of a queue name, with .fifo
	minTopicRoom = 32 // of it for the topic: a readable part and the hash
	hashDigits   = 12
)

// queueOf is where messages of a destination of the strategy go: the URL of a queue, or the name of one.
func (c Config) queueOf(destination string) string {
	if queue, ok := c.QueueURLs[destination]; ok {
		return queue
	}
	if strings.Contains(destination, "://") { // a strategy of the user's own may route to queues by URL
		return destination
	}
	topic := destination
	if isFIFO(c.QueueName) {
		topic = strings.TrimSuffix(topic, fifoSuffix)
	}
	room := maxNameBytes - len(c.QueueName) + len(topicMark)
	return strings.Replace(c.QueueName, topicMark, inName(topic, room), 1)
}

// inName is a topic as a part of a queue name.
func inName(topic string, room int) string {
	if len(topic) <= room && !strings.ContainsFunc(topic, illegalInName) {
		return topic
	}
	sum := sha256.Sum256([]byte(topic))
	legal := strings.Map(func(r rune) rune {
		if illegalInName(r) {
			return '_'
		}
		return r
	}, topic)
	legal = legal[:min(len(legal), room-hashDigits-1)]
	return legal + "-" + hex.EncodeToString(sum[:])[:hashDigits]
}

func illegalInName(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_':
		return false
	}
	return true
}

// isFIFO tells by the name, or the URL that ends with it, whether a queue is a FIFO queue.
func isFIFO(queue string) bool { return strings.HasSuffix(queue, fifoSuffix) }

// nameOf is the name of a queue, which its URL ends with.
func nameOf(queue string) string { return queue[strings.LastIndex(queue, "/")+1:] }
