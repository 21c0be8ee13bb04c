// Quickstart shows the outbox at work, with nothing to install: an order service writes orders and their events into a
// SQLite file, a dispatcher carries the events to Kafka (a small one, in this process), and a consumer checks what
// arrives against the orders table. Other databases and brokers are other URLs.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -orders 20000 -dispatchers 3
//	go run ./examples/quickstart -broker kafka://127.0.0.1:9092 -store postgres://postgres@127.0.0.1/shop
//	go run ./examples/quickstart -broker rabbitmq://guest:guest@127.0.0.1:5672/
//	go run ./examples/quickstart -broker sqs://embedded
//
// Read it in this order: service.go is how your service uses the outbox, this file how a dispatcher is started;
// consumer.go and check.go prove that nothing was lost, invented or reordered; database.go and bus.go open things, and
// kafka.go, rabbitmq.go and sqs.go are all that differs between brokers.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-outbox/outbox/core"
)

type options struct {
	storeURL    string
	brokerURL   string
	orders      int
	dispatchers int

	// patience is how long the consumer waits for a next event before it counts what is missing as lost.
	patience time.Duration
	// tamper, when not nil, stands between the broker and the consumer's check: tests show that the check can fail.
	tamper func(d delivery, deliver func(delivery))
}

func main() { os.Exit(start()) }

func start() (exitCode int) {
	opts := options{patience: 15 * time.Second}
	flag.StringVar(&opts.storeURL, "store", "", "where the orders live, as sqlite:FILE or postgres://... (default: a temporary file)")
	flag.StringVar(&opts.brokerURL, "broker", "",
		"where the events go, as kafka://HOST:PORT, rabbitmq://USER:PASSWORD@HOST:PORT/, sqs://HOST:PORT\n"+
			"or sqs://embedded, an SQS in this process (default: a Kafka in this process)")
	flag.IntVar(&opts.orders, "orders", 1000, "how many orders the service takes")
	flag.IntVar(&opts.dispatchers, "dispatchers", 1, "how many dispatchers run; with SQLite one works, the others stand by")
	flag.Parse()
	if flag.NArg() > 0 || opts.orders < 1 || opts.dispatchers < 1 {
		fmt.Fprintln(os.Stderr, "quickstart: -orders and -dispatchers must be at least 1, and there are no arguments")
		flag.Usage()
		return 2
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	result, err := run(ctx, opts, planOrders(opts.orders), os.Stdout)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "quickstart: interrupted")
		return 130
	case err != nil:
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		return 1
	}
	fmt.Println(result)
	if !result.ok() {
		return 1
	}
	return 0
}

// run is the whole story: service and dispatchers work side by side while the consumer reads along; when the service
// has taken its last order and the consumer has everything, the books are compared.
func run(ctx context.Context, opts options, plan plan, out io.Writer) (v verdict, err error) {
	name := "quickstart_" + strings.ToLower(rand.Text()[:8]) // of tables and topic: this run disturbs nobody
	db, err := openDatabase(ctx, opts.storeURL, name)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, db.cleanUp()) }()
	bus, err := openBus(ctx, opts.brokerURL, name)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, bus.cleanUp()) }()
	reader := startConsumer(ctx, bus.source, opts.patience, opts.tamper)
	defer reader.stop()

	announce(out, db, bus, plan, opts.dispatchers)

	stopDispatching, err := startDispatchers(ctx, db.store, bus.broker, opts.dispatchers)
	if err != nil {
		return v, err
	}
	defer func() { _ = stopDispatching() }() // a second call does nothing

	shop := &service{db: db, topic: bus.topic}
	closing := make(chan error, 1)
	go func() { closing <- shop.takeOrders(ctx, plan) }()

	progress := newProgressBar(os.Stderr, plan.events())
	defer progress.close()
	books, err := reader.readAlong(ctx, closing, db.books, progress.show)
	if err != nil {
		return v, err
	}
	if err := stopDispatching(); err != nil { // now the topic is complete: whatever is in it beyond the books is a fault
		return v, err
	}
	if err := reader.readToEnd(ctx); err != nil {
		return v, err
	}
	return compare(books, reader.deliveries, shop.rolledBack.Load()), nil
}

// startDispatchers runs n dispatchers in the background. In your service this is one core.NewDispatcher and one Run;
// replicas of the service share the work by themselves. The function that it returns lets them finish what is in
// flight, and waits.
func startDispatchers(ctx context.Context, store core.Store, broker core.Broker, n int) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	warnings := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var running sync.WaitGroup
	ended := make(chan error, n)
	for i := range n {
		d, err := core.NewDispatcher(store, broker, core.Config{Name: fmt.Sprint("dispatcher-", i+1), Logger: warnings})
		if err != nil {
			cancel()
			running.Wait()
			return nil, err
		}
		running.Go(func() { ended <- d.Run(ctx) })
	}
	return sync.OnceValue(func() error {
		cancel()
		running.Wait()
		close(ended)
		var faults []error
		for err := range ended {
			faults = append(faults, err)
		}
		return errors.Join(faults...)
	}), nil
}

func announce(out io.Writer, db *database, bus *bus, plan plan, dispatchers int) {
	_, _ = fmt.Fprintf(out, `An order service, its outbox, and a consumer that checks what arrives.
  store     %s
  broker    %s, topic %s
  service   orders: %d, changes of them: %d; each change and its event are one transaction,
            and about one in ten of these is rolled back and tried again
  dispatch  dispatchers: %d
  consumer  a plain client of the broker; it compares every event with the orders table
`, db.description, bus.description, bus.topic, len(plan), plan.events(), dispatchers)
}
