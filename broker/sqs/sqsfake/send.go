package sqsfake

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

// sent is what the sender of a message is told.
type sent struct {
	messageID, sequence string
}

// windowed is a de-duplication id and when it was sent.
type windowed struct {
	key string
	at  time.Time
}

// sendReply is one message in the answer.
type sendReply struct {
	ID                     string `json:"Id,omitempty"`
	MessageID              string `json:"MessageId"`
	MD5OfMessageBody       string
	MD5OfMessageAttributes string `json:",omitempty"`
	SequenceNumber         string `json:",omitempty"`
}

// failedReply is one refused message in the answer.
type failedReply struct {
	ID          string `json:"Id"`
	Code        string
	Message     string
	SenderFault bool
}

func (c *call) sendMessage() (any, error) {
	var in struct {
		QueueURL string `json:"QueueUrl"`
		Entry
	}
	return c.withQueue(&in, &in.QueueURL, func(q *queue) (any, error) {
		if err := q.check(&in.Entry); err != nil {
			return nil, err
		}
		return c.store(q, &in.Entry), nil
	})
}

func (c *call) sendMessageBatch() (any, error) {
	var in struct {
		QueueURL string `json:"QueueUrl"`
		Entries  []Entry
	}
	if c.fault.Vanish {
		return c.pretend()
	}
	return c.withQueue(&in, &in.QueueURL, func(q *queue) (any, error) {
		if err := q.checkBatch(in.Entries); err != nil {
			return nil, err
		}
		successful, failed := []sendReply{}, []failedReply{}
		for i := range in.Entries {
			e := &in.Entries[i]
			err := c.fault.Entries[i]
			if err == nil {
				err = q.check(e)
			}
			if err != nil {
				failed = append(failed, failedReply{e.ID, err.Code, err.Message, err.SenderFault})
				continue
			}
			reply := c.store(q, e)
			if slices.Contains(c.fault.BadChecksum, i) {
				reply.MD5OfMessageBody = checksum(e.Body + "!")
			}
			if !slices.Contains(c.fault.Omit, i) {
				successful = append(successful, reply)
			}
		}
		return map[string]any{"Successful": successful, "Failed": failed}, nil
	})
}

// pretend answers as if all were stored.
func (c *call) pretend() (any, error) {
	var in struct{ Entries []Entry }
	if err := c.read(&in); err != nil {
		return nil, err
	}
	successful := []sendReply{}
	for _, e := range in.Entries {
		successful = append(successful, replyTo(&e))
	}
	return map[string]any{"Successful": successful}, nil
}

// store puts a checked message into the queue, unless its de-duplication id was sent before within the window.
func (c *call) store(q *queue, e *Entry) sendReply {
	reply, now := replyTo(e), c.config.Now()
	m := Message{
		ID: reply.MessageID, Body: e.Body, Attributes: e.Attributes, GroupID: e.GroupID,
		DeduplicationID: e.DeduplicationID, SentAt: now,
	}
	if q.fifo {
		if m.DeduplicationID == "" {
			sum := sha256.Sum256([]byte(e.Body))
			m.DeduplicationID = hex.EncodeToString(sum[:])
		}
		key := q.dedupKey(&m)
		q.forget(now)
		if before, ok := q.seen[key]; ok {
			reply.MessageID, reply.SequenceNumber = before.messageID, before.sequence
			return reply
		}
		q.sequence++
		m.SequenceNumber = fmt.Sprintf("%020d", q.sequence)
		q.seen[key] = sent{m.ID, m.SequenceNumber}
		q.window = append(q.window, windowed{key, now})
	}
	delay := max(q.seconds("DelaySeconds"), time.Duration(e.DelaySeconds)*time.Second)
	q.waiting = append(q.waiting, &stored{Message: m, visibleAt: now.Add(delay)})
	q.log = append(q.log, m)
	c.wake()
	reply.SequenceNumber = m.SequenceNumber
	return reply
}

// replyTo is the answer to an entry that is stored.
func replyTo(e *Entry) sendReply {
	return sendReply{
		ID: e.ID, MessageID: newID(), MD5OfMessageBody: checksum(e.Body),
		MD5OfMessageAttributes: attributesChecksum(e.Attributes),
	}
}

// dedupKey is what must not be sent twice within the window.
func (q *queue) dedupKey(m *Message) string {
	if q.attributes["DeduplicationScope"] == "messageGroup" {
		return m.GroupID + "\x00" + m.DeduplicationID
	}
	return m.DeduplicationID
}

// forget drops the de-duplication ids that have left the window.
func (q *queue) forget(now time.Time) {
	old := 0
	for old < len(q.window) && now.Sub(q.window[old].at) >= DedupWindow {
		delete(q.seen, q.window[old].key)
		old++
	}
	q.window = q.window[old:]
}

// newID is a random UUID.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
