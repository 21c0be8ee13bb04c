package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/go-outbox/outbox/ordering"
)

// Declare creates the missing topics as Config.NewTopic says. Needs the right to create topics.
func (b *Broker) Declare(ctx context.Context, topics ...string) error {
	names, err := b.destinations(topics)
	if err != nil {
		return err
	}
	ctx, leave, err := b.enter(ctx, b.config.DeliveryTimeout)
	if err != nil {
		return fmt.Errorf("kafka: declare: %w", err)
	}
	defer leave()
	known, err := b.admin.ListTopics(ctx, names...)
	if err != nil {
		return fmt.Errorf("kafka: declare: list topics: %w", publishError(err))
	}
	missing := slices.DeleteFunc(names, known.Has)
	if len(missing) == 0 {
		return nil
	}
	partitions, replicas := int32(-1), int16(-1) // the cluster's defaults
	if n := b.config.NewTopic.Partitions; n > 0 {
		partitions = int32(n) //nolint:gosec // a number of partitions
	}
	if n := b.config.NewTopic.ReplicationFactor; n > 0 {
		replicas = int16(n) //nolint:gosec // a number of brokers
	}
	configs := make(map[string]*string, len(b.config.NewTopic.Configs))
	for name, value := range b.config.NewTopic.Configs {
		configs[name] = kadm.StringPtr(value)
	}
	created, err := b.admin.CreateTopics(ctx, partitions, replicas, configs, missing...)
	if err != nil {
		return fmt.Errorf("kafka: declare: create topics: %w", publishError(err))
	}
	var faults []error
	for _, topic := range created.Sorted() {
		if topic.Err != nil && !errors.Is(topic.Err, kerr.TopicAlreadyExists) {
			faults = append(faults, fmt.Errorf("kafka: declare: create topic %q: %w %s",
				topic.Topic, topic.Err, topic.ErrMessage))
		}
	}
	return errors.Join(faults...)
}

// Verify reports topics that are missing, have fewer partitions than the strategy spreads keys over, have partitions
// without a leader, cannot be written to with the configured acks, or refuse records that Prepare accepts.
func (b *Broker) Verify(ctx context.Context, topics ...string) error {
	names, err := b.destinations(topics)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return nil
	}
	ctx, leave, err := b.enter(ctx, b.config.DeliveryTimeout)
	if err != nil {
		return fmt.Errorf("kafka: verify: %w", err)
	}
	defer leave()
	details, err := b.admin.ListTopics(ctx, names...)
	if err != nil {
		return fmt.Errorf("kafka: verify: list topics: %w", publishError(err))
	}
	configs, err := b.admin.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return fmt.Errorf("kafka: verify: describe topics: %w", publishError(err))
	}
	var faults []error
	for _, name := range names {
		for _, reason := range b.faultsOf(details[name], topicConfigs(configs, name)) {
			faults = append(faults, fmt.Errorf("kafka: verify: topic %q: %w", name, reason))
		}
	}
	return errors.Join(faults...)
}

// faultsOf checks one topic. Settings that could not be read are not checked.
func (b *Broker) faultsOf(topic kadm.TopicDetail, configs map[string]string) (faults []error) {
	if topic.Err != nil {
		return []error{topic.Err}
	}
	if len(topic.Partitions) == 0 {
		return []error{errors.New("does not exist")}
	}
	if pin := b.partition.pin; pin > len(topic.Partitions) {
		faults = append(faults, fmt.Errorf("has %d partitions, fewer than the %d that keys are spread over "+
			"(ordering.RecordKey.Partitions): keys will move when it gets more", len(topic.Partitions), pin))
	}
	minISR, _ := strconv.Atoi(configs["min.insync.replicas"])
	for _, p := range topic.Partitions.Sorted() {
		switch {
		case p.Err != nil:
			faults = append(faults, fmt.Errorf("partition %d: %w", p.Partition, p.Err))
		case b.config.Acks == AcksAll && minISR > len(p.Replicas):
			faults = append(faults, fmt.Errorf("partition %d can never be written with acks=all: "+
				"min.insync.replicas is %d, and it has %d replicas", p.Partition, minISR, len(p.Replicas)))
		}
	}
	if limit, _ := strconv.Atoi(configs["max.message.bytes"]); limit > 0 && limit < b.config.MaxMessageBytes {
		faults = append(faults, fmt.Errorf("max.message.bytes is %d, less than MaxMessageBytes (%d): larger records "+
			"are parked only after the broker refused them", limit, b.config.MaxMessageBytes))
	}
	if configs["cleanup.policy"] != "" && configs["cleanup.policy"] != "delete" && b.keyless() {
		faults = append(faults, fmt.Errorf("cleanup.policy is %s, which needs record keys, and the ordering strategy "+
			"%s gives none", configs["cleanup.policy"], b.config.Strategy.Fingerprint()))
	}
	return faults
}

// keyless says whether the strategy gives no record keys.
func (b *Broker) keyless() bool {
	route, err := b.config.Strategy.Route(ordering.Input{
		Topic: "t", AggregateType: "t", AggregateID: "1", EventID: "1",
	})
	return err == nil && route.Token == ""
}

// destinations maps topics to their names at the cluster, each once.
func (b *Broker) destinations(topics []string) ([]string, error) {
	names := map[string]struct{}{}
	for _, topic := range topics {
		route, err := b.config.Strategy.Route(ordering.Input{Topic: topic})
		if err != nil {
			return nil, fmt.Errorf("kafka: topic %q: %w", topic, err)
		}
		if reason := badTopicName(route.Destination); reason != "" {
			return nil, fmt.Errorf("kafka: the topic name %q %s", route.Destination, reason)
		}
		names[route.Destination] = struct{}{}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// topicConfigs are the settings of a topic by name; empty when they could not be read.
func topicConfigs(resources kadm.ResourceConfigs, topic string) map[string]string {
	configs := map[string]string{}
	resource, err := resources.On(topic, nil)
	if err != nil || resource.Err != nil {
		return configs
	}
	for _, c := range resource.Configs {
		configs[c.Key] = c.MaybeValue()
	}
	return configs
}
