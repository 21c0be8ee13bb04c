package kafka

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// send tries the chunk of each share once, with one request for each leader at the same time, and writes what became of
// it into the share.
//
// The requests are made here instead of by the client's own producer, because that one does not keep what a Broker has
// to promise: it sends the first records of a call while the call still adds others, so that a batch that is refused
// leaves a gap in the order of a key; it fails records of all calls when a context of one ends; it keeps to itself which
// record of a batch was refused. Connections, versions, authentication and quotas are the client's.
func (c *call) send(ctx context.Context, shares []*share) {
	byLeader := map[int32][]*share{}
	for _, s := range shares {
		s.err = c.identify(ctx, s)
		if s.err != nil {
			continue
		}
		leader := s.partition.leader.Load()
		if leader < 0 {
			s.err = kerr.LeaderNotAvailable
			continue
		}
		byLeader[leader] = append(byLeader[leader], s)
	}
	if len(byLeader) == 1 {
		for leader, shares := range byLeader {
			c.request(ctx, leader, shares)
		}
		return
	}
	var requests sync.WaitGroup
	for leader, shares := range byLeader {
		requests.Go(func() { c.request(ctx, leader, shares) })
	}
	requests.Wait()
}

// identify writes into the chunk as whom it is sent. A repeat is sent as before, so that the leader recognises it.
func (c *call) identify(ctx context.Context, s *share) error {
	if s.stamped {
		return nil
	}
	id := s.partition.identity
	if c.config.idempotent() {
		if id = c.producers.next(id); s.refused || id.producer < 0 {
			var err error
			if id, err = c.producers.renew(ctx, id); err != nil {
				return &unsentError{err}
			}
		}
	}
	s.partition.identity, s.stamped, s.refused = id, true, false
	stamp(s.data, id)
	return nil
}

// request sends one request and gives each share its part of the answer.
func (c *call) request(ctx context.Context, leader int32, shares []*share) {
	request := kmsg.NewPtrProduceRequest()
	request.Acks = -1                                                     // all; for others the client writes in its own
	request.TimeoutMillis = int32(c.config.RequestTimeout.Milliseconds()) //nolint:gosec // seconds
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.TopicID = c.topic.name, c.layout.id
	for _, s := range shares {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = s.partition.index, s.data
		topic.Partitions = append(topic.Partitions, p)
		s.err = errNoAnswer
	}
	request.Topics = append(request.Topics, topic)

	response, err := request.RequestWith(ctx, c.client.Broker(int(leader)))
	for _, s := range shares {
		switch {
		case err != nil:
			s.err = err
		case c.config.Acks == AcksNone:
			s.err = nil // there is no answer
		default:
			if p := partitionOf(response, s.partition.index); p != nil {
				s.err = answerError(p, s.chunk)
			}
		}
	}
}

// partitionOf finds a partition in the answer to a request of one topic.
func partitionOf(response *kmsg.ProduceResponse, index int32) *kmsg.ProduceResponseTopicPartition {
	for i := range response.Topics {
		for j := range response.Topics[i].Partitions {
			if p := &response.Topics[i].Partitions[j]; p.Partition == index {
				return p
			}
		}
	}
	return nil
}

// answerError is what an answer says about a batch of so many records; nil when it is stored.
func answerError(p *kmsg.ProduceResponseTopicPartition, records int) error {
	err := kerr.ErrorForCode(p.ErrorCode)
	if err == nil {
		return nil
	}
	answer := &refusal{err: err}
	if p.ErrorMessage != nil {
		answer.detail = *p.ErrorMessage
	}
	for _, record := range p.ErrorRecords {
		if place := int(record.RelativeOffset); place >= 0 && place < records {
			answer.records = append(answer.records, place)
		}
	}
	return answer
}
