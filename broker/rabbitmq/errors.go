package rabbitmq

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/core"
)

var (
	errNack = errors.New("the server did not take the message over (negative confirm): a queue is full and refuses " +
		"(overflow reject-publish), or a queue has no leader")
	errUnconfirmed = errors.New("the channel ended before the server confirmed the message")
	errGivenClosed = errors.New("the connection that was given to New is closed")
)

// dialError marks an error from making a connection: nothing was sent.
type dialError struct {
	address string
	err     error
}

func (e *dialError) Error() string { return "connect to " + e.address + ": " + e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// blockedError says that the server takes nothing at present.
type blockedError struct{ reason string }

func (e *blockedError) Error() string {
	return "the server blocks publishers (" + e.reason + "): free memory or disk space on it"
}

// returnedError says that no queue is bound.
type returnedError struct {
	code                  uint16
	text, exchange, token string
}

func (e *returnedError) Error() string {
	return fmt.Sprintf("the server returned the message (%d %s): no queue is bound to exchange %q with routing key %q; "+
		"run Declare for the topic", e.code, e.text, e.exchange, e.token)
}

// verdict is what an error means.
type verdict struct {
	class core.Class
	scope core.Scope
	code  string
	// isolate: one message of several has caused it, and its neighbours are in doubt. Alone it shows which.
	isolate bool
}

// classify decides for every error what it is about. What is known of a message depends on whether it was sent.
func classify(err error) verdict {
	var reply *amqp.Error
	switch {
	// The alarm ends when somebody frees memory or disk; nobody's message is at fault.
	case errors.As(err, new(*blockedError)):
		return verdict{core.ClassThrottled, core.ScopeBroker, "BLOCKED", false}
	// Certain: the server stored it nowhere. All shards of a topic are bound by the same Declare, so that the topic
	// waits for a person, and its messages keep their attempts.
	case errors.As(err, new(*returnedError)):
		return verdict{core.ClassMisconfigured, core.ScopeDestination, "NO_ROUTE", false}
	// Most often a full queue. Its other shards have queues of their own, so the key alone waits; it is not the
	// message's fault, so that no attempt is charged however long the queue stays full.
	case errors.Is(err, errNack):
		return verdict{core.ClassThrottled, core.ScopeKey, "NACK", false}
	case errors.Is(err, core.ErrClosed):
		return verdict{core.ClassUnavailable, core.ScopeBroker, "CLOSED", false}
	// A certificate, a name or a protocol that does not fit will not fit by itself.
	case isTLSError(err):
		return verdict{core.ClassMisconfigured, core.ScopeBroker, "TLS", false}
	case errors.As(err, &reply):
		return classifyReply(reply, errors.As(err, new(*dialError)))
	// Before the timeouts, as a dial that takes too long looks like one.
	case errors.As(err, new(*dialError)):
		return verdict{core.ClassUnavailable, core.ScopeBroker, "NO_CONNECTION", false}
	// Ours: the caller gave up, or the server was too slow. A queue without a leader confirms nothing while others do.
	case errors.Is(err, context.Canceled):
		return verdict{core.ClassUnavailable, core.ScopeDestination, "CANCELED", false}
	case errors.Is(err, context.DeadlineExceeded):
		return verdict{core.ClassUnavailable, core.ScopeDestination, "TIMEOUT", false}
	case errors.Is(err, errGivenClosed), errors.Is(err, errUnconfirmed):
		return verdict{core.ClassUnavailable, core.ScopeBroker, "CONNECTION_LOST", false}
	case errors.Is(err, io.EOF), errors.As(err, new(net.Error)):
		return verdict{core.ClassUnavailable, core.ScopeBroker, "CONNECTION_LOST", false}
	// The client library's own objections to a message, which Prepare should have found: they count as the message's,
	// so that it is parked in the end.
	default:
		return verdict{core.ClassTransient, core.ScopeMessage, "CLIENT", false}
	}
}

// classifyReply is for AMQP's reply codes, of the server and of the client library's own.
func classifyReply(e *amqp.Error, dialing bool) verdict {
	code := replyName(e.Code)
	switch {
	// The library reports a connection that broke as a frame error (501), and one that is closed as a channel error.
	case !e.Server && (e.Code == amqp.FrameError || e.Code == amqp.ChannelError):
		if dialing {
			return verdict{core.ClassUnavailable, core.ScopeBroker, "NO_CONNECTION", false}
		}
		return verdict{core.ClassUnavailable, core.ScopeBroker, "CONNECTION_LOST", false}
	// Wrong credentials, no right to the virtual host, no such virtual host, too many connections, unknown mechanism:
	// a person has to act before we get in.
	case dialing && (e.Code == amqp.AccessRefused || e.Code == amqp.NotAllowed || e.Code == amqp.InvalidPath ||
		e.Code == amqp.NotImplemented || e.Code == amqp.SyntaxError):
		return verdict{core.ClassMisconfigured, core.ScopeBroker, code, false}
	// Shut down by an operator, out of resources, a fault of the server, a lock not free yet: it may pass.
	case e.Code == amqp.ConnectionForced, e.Code == amqp.ResourceError, e.Code == amqp.InternalError,
		e.Code == amqp.ResourceLocked, dialing:
		return verdict{core.ClassUnavailable, core.ScopeBroker, code, false}
	// The exchange is missing, of another kind, or closed to us.
	case e.Code == amqp.NotFound, e.Code == amqp.AccessRefused, e.Code == amqp.NotAllowed, e.Code == amqp.NotImplemented:
		return verdict{core.ClassMisconfigured, core.ScopeDestination, code, false}
	// Something about one message: too large for this server, or a property that it does not accept.
	case e.Code == amqp.PreconditionFailed, e.Code == amqp.ContentTooLarge,
		e.Code == amqp.FrameError, e.Code == amqp.SyntaxError:
		return verdict{core.ClassPermanent, core.ScopeMessage, code, true}
	// Protocol errors that no message can cause.
	default:
		return verdict{core.ClassUnavailable, core.ScopeBroker, code, false}
	}
}

// replyName is AMQP's name of a reply code.
func replyName(code int) string {
	switch code {
	case amqp.ContentTooLarge:
		return "CONTENT_TOO_LARGE"
	case amqp.ConnectionForced:
		return "CONNECTION_FORCED"
	case amqp.InvalidPath:
		return "INVALID_PATH"
	case amqp.AccessRefused:
		return "ACCESS_REFUSED"
	case amqp.NotFound:
		return "NOT_FOUND"
	case amqp.ResourceLocked:
		return "RESOURCE_LOCKED"
	case amqp.PreconditionFailed:
		return "PRECONDITION_FAILED"
	case amqp.FrameError:
		return "FRAME_ERROR"
	case amqp.SyntaxError:
		return "SYNTAX_ERROR"
	case amqp.NotAllowed:
		return "NOT_ALLOWED"
	case amqp.NotImplemented:
		return "NOT_IMPLEMENTED"
	case amqp.ResourceError:
		return "RESOURCE_ERROR"
	case amqp.InternalError:
		return "INTERNAL_ERROR"
	default:
		return "AMQP_" + strconv.Itoa(code)
	}
}

func isTLSError(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) ||
		errors.As(err, new(tls.AlertError)) || errors.As(err, new(x509.UnknownAuthorityError)) ||
		errors.As(err, new(x509.HostnameError)) || errors.As(err, new(x509.CertificateInvalidError))
}

// publishError wraps an error with its classification.
func publishError(err error) *core.PublishError {
	v := classify(err)
	return &core.PublishError{Class: v.class, Scope: v.scope, Code: v.code, Err: err}
}
