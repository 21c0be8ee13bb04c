package rabbitmq

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/core"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	server := func(code int) error { return &amqp.Error{Code: code, Reason: "told", Server: true} }
	dialing := func(err error) error { return &dialError{"rabbit-1:5672", err} }
	refused := &net.OpError{Op: "dial", Err: &os.SyscallError{Syscall: "connect", Err: errors.New("refused")}}
	broken := &amqp.Error{Code: amqp.FrameError, Reason: "EOF"} // the library's
	for _, c := range []struct {
		err     error
		class   core.Class
		scope   core.Scope
		code    string
		isolate bool
	}{
		// about the server's state
		{&blockedError{"low on memory"}, core.ClassThrottled, core.ScopeBroker, "BLOCKED", false},
		{errNack, core.ClassThrottled, core.ScopeKey, "NACK", false},
		// a person has to act for this topic
		{&returnedError{312, "NO_ROUTE", "orders", "1.7"}, core.ClassMisconfigured, core.ScopeDestination, "NO_ROUTE", false},
		{server(amqp.NotFound), core.ClassMisconfigured, core.ScopeDestination, "NOT_FOUND", false},
		{server(amqp.AccessRefused), core.ClassMisconfigured, core.ScopeDestination, "ACCESS_REFUSED", false},
		{server(amqp.NotAllowed), core.ClassMisconfigured, core.ScopeDestination, "NOT_ALLOWED", false},
		{server(amqp.NotImplemented), core.ClassMisconfigured, core.ScopeDestination, "NOT_IMPLEMENTED", false},
		// a person has to act before we get in
		{dialing(amqp.ErrCredentials), core.ClassMisconfigured, core.ScopeBroker, "ACCESS_REFUSED", false},
		{dialing(amqp.ErrSASL), core.ClassMisconfigured, core.ScopeBroker, "ACCESS_REFUSED", false},
		{dialing(server(amqp.AccessRefused)), core.ClassMisconfigured, core.ScopeBroker, "ACCESS_REFUSED", false},
		{dialing(server(amqp.NotAllowed)), core.ClassMisconfigured, core.ScopeBroker, "NOT_ALLOWED", false},
		{dialing(x509.UnknownAuthorityError{}), core.ClassMisconfigured, core.ScopeBroker, "TLS", false},
		// one message of the batch
		{server(amqp.PreconditionFailed), core.ClassPermanent, core.ScopeMessage, "PRECONDITION_FAILED", true},
		{server(amqp.ContentTooLarge), core.ClassPermanent, core.ScopeMessage, "CONTENT_TOO_LARGE", true},
		{server(amqp.FrameError), core.ClassPermanent, core.ScopeMessage, "FRAME_ERROR", true},
		{server(amqp.SyntaxError), core.ClassPermanent, core.ScopeMessage, "SYNTAX_ERROR", true},
		{errors.New("shortstr exceeds 255 bytes"), core.ClassTransient, core.ScopeMessage, "CLIENT", false},
		// outages
		{server(amqp.ConnectionForced), core.ClassUnavailable, core.ScopeBroker, "CONNECTION_FORCED", false},
		{server(amqp.ResourceError), core.ClassUnavailable, core.ScopeBroker, "RESOURCE_ERROR", false},
		{server(amqp.InternalError), core.ClassUnavailable, core.ScopeBroker, "INTERNAL_ERROR", false},
		{server(amqp.UnexpectedFrame), core.ClassUnavailable, core.ScopeBroker, "AMQP_505", false},
		{dialing(server(amqp.ResourceLocked)), core.ClassUnavailable, core.ScopeBroker, "RESOURCE_LOCKED", false},
		{dialing(server(amqp.ConnectionForced)), core.ClassUnavailable, core.ScopeBroker, "CONNECTION_FORCED", false},
		{dialing(refused), core.ClassUnavailable, core.ScopeBroker, "NO_CONNECTION", false},
		{dialing(context.DeadlineExceeded), core.ClassUnavailable, core.ScopeBroker, "NO_CONNECTION", false},
		{dialing(broken), core.ClassUnavailable, core.ScopeBroker, "NO_CONNECTION", false},
		{broken, core.ClassUnavailable, core.ScopeBroker, "CONNECTION_LOST", false},
		{amqp.ErrClosed, core.ClassUnavailable, core.ScopeBroker, "CONNECTION_LOST", false},
		{errUnconfirmed, core.ClassUnavailable, core.ScopeBroker, "CONNECTION_LOST", false},
		{errGivenClosed, core.ClassUnavailable, core.ScopeBroker, "CONNECTION_LOST", false},
		{io.EOF, core.ClassUnavailable, core.ScopeBroker, "CONNECTION_LOST", false},
		{refused, core.ClassUnavailable, core.ScopeBroker, "CONNECTION_LOST", false},
		// ours
		{core.ErrClosed, core.ClassUnavailable, core.ScopeBroker, "CLOSED", false},
		{context.DeadlineExceeded, core.ClassUnavailable, core.ScopeDestination, "TIMEOUT", false},
		{context.Canceled, core.ClassUnavailable, core.ScopeDestination, "CANCELED", false},
	} {
		got := classify(fmt.Errorf("wrapped: %w", c.err))
		if want := (verdict{c.class, c.scope, c.code, c.isolate}); got != want {
			t.Errorf("%v: %+v, want %+v", c.err, got, want)
		}
		if published := publishError(c.err); !errors.Is(published, c.err) || published.Code != got.code {
			t.Errorf("%v: wrapped as %v", c.err, published)
		}
	}
}
