package sqsfake

import (
	"slices"
	"strconv"
	"time"
)

// received is a message in the answer to a consumer.
type received struct {
	MessageID              string `json:"MessageId"`
	ReceiptHandle          string
	Body                   string
	MD5OfBody              string
	Attributes             map[string]string    `json:",omitempty"`
	MessageAttributes      map[string]Attribute `json:",omitempty"`
	MD5OfMessageAttributes string               `json:",omitempty"`
}

func (c *call) receiveMessage() (any, error) {
	var in struct {
		QueueURL            string `json:"QueueUrl"`
		MaxNumberOfMessages int
		VisibilityTimeout   *int
		WaitTimeSeconds     *int
	}
	if err := c.read(&in); err != nil {
		return nil, err
	}
	count := max(in.MaxNumberOfMessages, 1)
	if count > maxEntries {
		return nil, Invalid("Value %d for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10.", count)
	}
	var deadline <-chan time.Time
	for {
		c.mu.Lock()
		q, err := c.lookup(in.QueueURL)
		if err != nil {
			c.mu.Unlock()
			return nil, err
		}
		visibility, wait := q.seconds("VisibilityTimeout"), q.seconds("ReceiveMessageWaitTimeSeconds")
		if in.VisibilityTimeout != nil {
			visibility = time.Duration(*in.VisibilityTimeout) * time.Second
		}
		if in.WaitTimeSeconds != nil {
			wait = time.Duration(*in.WaitTimeSeconds) * time.Second
		}
		now := c.config.Now()
		messages, next := q.receive(now, count, visibility)
		changed := c.changed
		c.mu.Unlock()
		if len(messages) > 0 || wait == 0 {
			return map[string]any{"Messages": messages}, nil
		}
		if deadline == nil {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			deadline = timer.C
		}
		if !c.waitForMessages(deadline, changed, next.Sub(now)) {
			return map[string]any{"Messages": []received{}}, nil
		}
	}
}

// waitForMessages reports false when the wait is over.
func (c *call) waitForMessages(deadline <-chan time.Time, changed <-chan struct{}, next time.Duration) bool {
	var visible <-chan time.Time
	if next > 0 {
		timer := time.NewTimer(next)
		defer timer.Stop()
		visible = timer.C
	}
	select {
	case <-deadline:
		return false
	case <-c.ctx.Done():
		return false
	case <-changed:
	case <-visible:
	}
	return true
}

// receive takes up to count visible messages; of a group of a FIFO queue nothing while one of it is in flight. Next is
// when the next message becomes visible again, if any does.
func (q *queue) receive(now time.Time, count int, visibility time.Duration) (messages []received, next time.Time) {
	locked := map[string]bool{}
	for _, m := range q.waiting {
		if len(messages) == count {
			break
		}
		if m.deleted {
			continue
		}
		if m.visibleAt.After(now) {
			locked[m.GroupID] = true // in flight or delayed: what comes after it in its group waits
			if next.IsZero() || m.visibleAt.Before(next) {
				next = m.visibleAt
			}
			continue
		}
		if q.fifo && locked[m.GroupID] {
			continue
		}
		messages = append(messages, q.take(m, now, visibility))
	}
	return messages, next
}

// take gives a message to a consumer.
func (q *queue) take(m *stored, now time.Time, visibility time.Duration) received {
	delete(q.byHandle, m.handle)
	m.handle, m.visibleAt = newID(), now.Add(visibility)
	q.byHandle[m.handle] = m
	if m.receives++; m.receives == 1 {
		m.firstSeen = now
	}
	attributes := map[string]string{
		"SentTimestamp":                    strconv.FormatInt(m.SentAt.UnixMilli(), 10),
		"ApproximateReceiveCount":          strconv.Itoa(m.receives),
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(m.firstSeen.UnixMilli(), 10),
	}
	if q.fifo {
		attributes["MessageGroupId"] = m.GroupID
		attributes["MessageDeduplicationId"] = m.DeduplicationID
		attributes["SequenceNumber"] = m.SequenceNumber
	}
	return received{
		MessageID: m.ID, ReceiptHandle: m.handle, Body: m.Body, MD5OfBody: checksum(m.Body), Attributes: attributes,
		MessageAttributes: m.Attributes, MD5OfMessageAttributes: attributesChecksum(m.Attributes),
	}
}

// count tells how many messages are visible and how many are in flight.
func (q *queue) count(now time.Time) (visible, inFlight int) {
	for _, m := range q.waiting {
		switch {
		case m.deleted:
		case m.inFlight(now):
			inFlight++
		case !m.visibleAt.After(now):
			visible++
		}
	}
	return visible, inFlight
}

// delete deletes a message by its receipt handle. A FIFO queue refuses the handle of a message that has become visible
// again; a standard queue takes it.
func (q *queue) delete(handle string, now time.Time) *Error {
	m := q.byHandle[handle]
	if m == nil || q.fifo && !m.inFlight(now) {
		return Invalid("Value %s for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.", handle)
	}
	delete(q.byHandle, handle)
	m.deleted = true
	if q.deleted++; q.deleted > len(q.waiting)/2 {
		q.waiting = slices.DeleteFunc(q.waiting, func(m *stored) bool { return m.deleted })
		q.deleted = 0
	}
	return nil
}

func (c *call) deleteMessage() (any, error) {
	var in struct {
		QueueURL      string `json:"QueueUrl"`
		ReceiptHandle string
	}
	return c.withQueue(&in, &in.QueueURL, func(q *queue) (any, error) {
		if err := q.delete(in.ReceiptHandle, c.config.Now()); err != nil {
			return nil, err
		}
		c.wake()
		return struct{}{}, nil
	})
}

func (c *call) deleteMessageBatch() (any, error) {
	var in struct {
		QueueURL string `json:"QueueUrl"`
		Entries  []struct {
			ID            string `json:"Id"`
			ReceiptHandle string
		}
	}
	return c.withQueue(&in, &in.QueueURL, func(q *queue) (any, error) {
		successful, failed := []map[string]string{}, []failedReply{}
		for _, e := range in.Entries {
			if err := q.delete(e.ReceiptHandle, c.config.Now()); err != nil {
				failed = append(failed, failedReply{e.ID, err.Code, err.Message, err.SenderFault})
				continue
			}
			successful = append(successful, map[string]string{"Id": e.ID})
		}
		c.wake()
		return map[string]any{"Successful": successful, "Failed": failed}, nil
	})
}

func (c *call) changeMessageVisibility() (any, error) {
	var in struct {
		QueueURL          string `json:"QueueUrl"`
		ReceiptHandle     string
		VisibilityTimeout int
	}
	return c.withQueue(&in, &in.QueueURL, func(q *queue) (any, error) {
		now := c.config.Now()
		m := q.byHandle[in.ReceiptHandle]
		if m == nil || !m.inFlight(now) {
			return nil, refuse("MessageNotInflight", "The message is not in flight.")
		}
		m.visibleAt = now.Add(time.Duration(in.VisibilityTimeout) * time.Second)
		c.wake()
		return struct{}{}, nil
	})
}
