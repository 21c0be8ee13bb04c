package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/ordering"
)

// Declare makes what is missing for the topics: the exchange, and for each consumer group of Config.Groups its queues,
// their bindings and the place of its dead letters. What is there stays as it is; what is there and different is an
// error. Needs the right to configure those names. Declaring the same again is cheap.
func (b *Broker) Declare(ctx context.Context, topics ...string) error {
	return b.eachObject(ctx, "declare", topics, func(l *link, o object) error {
		return l.withChannel(ctx, o.declare)
	})
}

// Verify reports everything about the topics that is missing or declared in another way than Declare does: exchanges,
// and for each consumer group of Config.Groups its queues and the place of its dead letters.
//
// Bindings cannot be listed over AMQP. Verify binds again what has to be bound, which changes nothing where it is.
// Another number of queues or shards than a generation was declared with is found, because the queues carry both in
// their arguments (x-dead-letter-routing-key).
func (b *Broker) Verify(ctx context.Context, topics ...string) error {
	return b.eachObject(ctx, "verify", topics, func(l *link, o object) error {
		if err := l.withChannel(ctx, o.exists); err != nil {
			return err
		}
		return l.withChannel(ctx, o.declare) // refused with 406 when it is another one
	})
}

// eachObject does something with every object of the topics and collects what goes wrong.
func (b *Broker) eachObject(ctx context.Context, what string, topics []string, do func(*link, object) error) error {
	var objects []object
	var faults []error
	for _, topic := range topics {
		more, err := b.objectsOf(topic)
		objects = append(objects, more...)
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("rabbitmq: %s: %w", what, err)
	}
	ctx, leave, err := b.enter(ctx, b.config.ConfirmTimeout)
	if err != nil {
		return fmt.Errorf("rabbitmq: %s: %w", what, err)
	}
	defer leave()
	for _, o := range objects {
		l, err := b.connect(ctx)
		if err == nil {
			err = do(l, o)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("rabbitmq: %s topic %q: %s: %w", what, o.topic, o.what, publishError(err)))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(faults...)
}

// object is an exchange, a queue, or the bindings of a queue.
type object struct {
	topic, what string
	// exists fails when it is missing, declare makes it. Both end their channel when they fail.
	exists, declare func(*amqp.Channel) error
}

// objectsOf returns what a topic needs, in the order in which it can be declared.
func (b *Broker) objectsOf(topic string) ([]object, error) {
	route, err := b.config.Strategy.Route(ordering.Input{Topic: topic})
	if err != nil {
		return nil, fmt.Errorf("topic %q: %w", topic, err)
	}
	exchange := route.Destination
	if reason := badExchangeName(exchange); reason != "" {
		return nil, fmt.Errorf("topic %q: the exchange name %q %s", topic, exchange, reason)
	}
	objects := []object{exchangeObject(topic, exchange, amqp.ExchangeDirect)}
	groups := b.config.groupsOf(topic)
	if len(groups) == 0 {
		return objects, nil
	}
	layout, err := layoutOf(b.config.Strategy)
	if err != nil {
		return nil, fmt.Errorf("topic %q: %w", topic, err)
	}
	for _, g := range groups {
		if g.Queues > len(layout.tokens) {
			return nil, fmt.Errorf("topic %q: group %q has %d queues, but there are %d shards to spread over them",
				topic, g.Name, g.Queues, len(layout.tokens))
		}
		objects = append(objects, groupObjects(topic, exchange, g, layout)...)
	}
	return objects, nil
}

// layout is what the queues of a group have to cover.
type layout struct {
	generation int
	tokens     []string // the routing keys, one for each virtual shard
	ordered    bool     // one consumer at a time
}

func layoutOf(strategy ordering.Strategy) (layout, error) {
	switch s := strategy.(type) {
	case ordering.Shards:
		s = s.WithDefaults()
		l := layout{generation: s.Generation, tokens: make([]string, s.Count), ordered: true}
		for shard := range l.tokens {
			l.tokens[shard] = s.Token(shard)
		}
		return l, nil
	case ordering.None:
		return layout{generation: 1, tokens: []string{""}}, nil
	default:
		return layout{}, fmt.Errorf("strategy %s: queues are declared for ordering.Shards and ordering.None only",
			strategy.Fingerprint())
	}
}

// tokensOf are the routing keys of one queue of a group.
func (l layout) tokensOf(g Group, n int) []string {
	var tokens []string
	for shard := n; shard < len(l.tokens); shard += g.Queues {
		tokens = append(tokens, l.tokens[shard])
	}
	return tokens
}

// groupObjects returns what one group needs.
func groupObjects(topic, exchange string, g Group, l layout) []object {
	var objects []object
	dead := g.DeadLetterExchange
	if dead == "" {
		dead = DeadLetterName(topic, g.Name)
		objects = append(objects, exchangeObject(topic, dead, amqp.ExchangeFanout),
			queueObject(topic, dead, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}),
			bindingsObject(topic, dead, dead, []string{""}))
	} else {
		exists := exchangeObject(topic, dead, amqp.ExchangeDirect).exists
		objects = append(objects, object{topic, "dead-letter exchange " + strconv.Quote(dead), exists, exists})
	}
	for n := range g.Queues {
		queue := QueueName(topic, g.Name, l.generation, n)
		objects = append(objects, queueObject(topic, queue, queueArguments(g, l, n, dead)),
			bindingsObject(topic, exchange, queue, l.tokensOf(g, n)))
	}
	return objects
}

// queueArguments are those of a shard queue. The routing key of dead letters tells which queue they come from; as the
// server compares it, it also keeps a generation to its number of queues and shards.
func queueArguments(g Group, l layout, n int, dead string) amqp.Table {
	arguments := amqp.Table{
		amqp.QueueTypeArg:           amqp.QueueTypeQuorum,
		"x-delivery-limit":          int32(g.DeliveryLimit), //nolint:gosec // validated
		"x-dead-letter-exchange":    dead,
		"x-dead-letter-routing-key": fmt.Sprintf("%d.%d/%d/%d", l.generation, n, g.Queues, len(l.tokens)),
		// A dead letter stays in its queue until the dead-letter queue has it. The server wants the other for that;
		// without a length limit nothing is ever refused.
		"x-dead-letter-strategy": "at-least-once",
		amqp.QueueOverflowArg:    amqp.QueueOverflowRejectPublish,
	}
	if l.ordered {
		arguments[amqp.SingleActiveConsumerArg] = true
	}
	return arguments
}

func exchangeObject(topic, name, kind string) object {
	return object{topic, kind + " exchange " + strconv.Quote(name), func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(name, kind, true, false, false, false, nil)
	}, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(name, kind, true, false, false, false, nil)
	}}
}

func queueObject(topic, name string, arguments amqp.Table) object {
	return object{topic, "queue " + strconv.Quote(name), func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, arguments)
		return err
	}, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, arguments)
		return err
	}}
}

// bindingsObject binds a queue to an exchange. The server answers only the last request, which it comes to after the
// others: one answer for each would take a second for 256 shards on a distant server.
func bindingsObject(topic, exchange, queue string, tokens []string) object {
	exists := func(ch *amqp.Channel) error { return nil } // cannot be asked
	return object{topic, "bindings of queue " + strconv.Quote(queue), exists, func(ch *amqp.Channel) error {
		for i, token := range tokens {
			last := i == len(tokens)-1
			if err := ch.QueueBind(queue, token, exchange, !last, nil); err != nil {
				return err
			}
		}
		return nil
	}}
}
