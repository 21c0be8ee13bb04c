package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/go-outbox/outbox/core"
)

// StoreFactory opens a store. It calls decode once, before anything else, with a pointer to a struct of settings, and
// returns decode's error as it is: [Load] calls it only to learn what that struct is, with a decode that always fails. A
// Validate method of the struct is called when its settings are checked, and a WithDefaults method that returns a copy
// when they are printed. A field of type *slog.Logger gets the logger given to [Config.Open].
type StoreFactory func(ctx context.Context, decode func(any) error) (core.Store, error)

// BrokerFactory opens a broker; see [StoreFactory]. A field Strategy of type [ordering.Strategy] is set by the key
// "ordering".
//
// [ordering.Strategy]: https://pkg.go.dev/github.com/go-outbox/outbox/ordering#Strategy
type BrokerFactory func(ctx context.Context, decode func(any) error) (core.Broker, error)

// Registry is which types of stores and brokers there are: a value, so that a program links what it names and no more.
type Registry struct {
	// Stores and Brokers are the factories by type, as it stands in a file and as the scheme of a URL.
	Stores  map[string]StoreFactory
	Brokers map[string]BrokerFactory
	// Schemes are further schemes of URLs, each with the type that it means: "postgresql" means "postgres".
	Schemes map[string]string
}

// Store makes a factory of an adapter's Open and, unless it is nil, its ParseURL.
func Store[C any, S core.Store](
	open func(context.Context, C) (S, error), parseURL func(string) (C, error),
) StoreFactory {
	return func(ctx context.Context, decode func(any) error) (core.Store, error) {
		b := block[C]{parse: parseURL}
		if err := decode(&b); err != nil {
			return nil, err
		}
		store, err := open(ctx, b.config)
		if err != nil {
			return nil, err // store may be a nil pointer, which must not become an interface
		}
		return store, nil
	}
}

// Broker makes a factory of an adapter's Open, its ParseURL unless that is nil, and the strategies that it can keep.
func Broker[C any, B core.Broker](
	open func(context.Context, C) (B, error), parseURL func(string) (C, error), orderings ...Ordering,
) BrokerFactory {
	return func(ctx context.Context, decode func(any) error) (core.Broker, error) {
		b := block[C]{parse: parseURL, allowed: orderings}
		if err := decode(&b); err != nil {
			return nil, err
		}
		broker, err := open(ctx, b.config)
		if err != nil {
			return nil, err
		}
		return broker, nil
	}
}

// block is what Store and Broker let decode fill.
type block[C any] struct {
	config  C
	parse   func(string) (C, error)
	allowed []Ordering
}

func (b *block[C]) target() target {
	t := target{value: reflect.ValueOf(&b.config).Elem(), orderings: b.allowed}
	if b.parse != nil {
		t.parse = func(raw string) (err error) {
			b.config, err = b.parse(raw)
			return err
		}
	}
	return t
}

// target is where the settings of one store or broker go.
type target struct {
	value     reflect.Value // a struct
	parse     func(url string) error
	orderings []Ordering
}

func (t target) shape() *shape { return shapeOf(t.value.Type(), t.orderings) }

// setLogger gives the logger to settings that came out of a URL.
func (t target) setLogger(log *slog.Logger) {
	if s := t.shape(); s.logger != nil && log != nil {
		t.value.FieldByIndex(s.logger).Set(reflect.ValueOf(log))
	}
}

// targetOf accepts what a factory gives to decode.
func targetOf(pointer any) (target, error) {
	if b, ok := pointer.(interface{ target() target }); ok {
		return b.target(), nil
	}
	v := reflect.ValueOf(pointer)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return target{}, fmt.Errorf("config: a factory gave decode a %T instead of a pointer to a struct", pointer)
	}
	return target{value: v.Elem(), orderings: allOrderings()}, nil
}

// opener is a factory of either kind.
type opener[T any] = func(ctx context.Context, decode func(any) error) (T, error)

var errProbe = errors.New("config: the factory was only asked for its settings")

// probe asks a factory what it has decoded.
func probe[T any](ctx context.Context, open opener[T]) (t target, err error) {
	asked := false
	_, openErr := open(ctx, func(pointer any) error {
		asked = true
		t, err = targetOf(pointer)
		return errProbe
	})
	switch {
	case err != nil:
		return t, err
	case !asked || !errors.Is(openErr, errProbe):
		return t, errors.New("config: a factory must call decode first and return its error")
	}
	return t, nil
}
