package kafka

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/core"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Err: &os.SyscallError{Syscall: "connect", Err: errors.New("refused")}}
	read := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	for _, c := range []struct {
		err     error
		class   core.Class
		scope   core.Scope
		outcome core.Outcome
		cure    cure
	}{
		// a message that cannot be accepted
		{kerr.MessageTooLarge, core.ClassPermanent, core.ScopeMessage, core.OutcomeRejected, cureIsolate},
		{kerr.RecordListTooLarge, core.ClassPermanent, core.ScopeMessage, core.OutcomeRejected, cureIsolate},
		{kerr.InvalidRecord, core.ClassPermanent, core.ScopeMessage, core.OutcomeRejected, cureIsolate},
		// a leader that moves
		{kerr.NotLeaderForPartition, core.ClassUnavailable, core.ScopeDestination, core.OutcomeRejected, cureLocate},
		{kerr.LeaderNotAvailable, core.ClassUnavailable, core.ScopeDestination, core.OutcomeRejected, cureLocate},
		{kerr.FencedLeaderEpoch, core.ClassUnavailable, core.ScopeDestination, core.OutcomeRejected, cureLocate},
		{kerr.KafkaStorageError, core.ClassUnavailable, core.ScopeDestination, core.OutcomeUnknown, cureLocate},
		{kerr.NotEnoughReplicas, core.ClassUnavailable, core.ScopeDestination, core.OutcomeRejected, cureRepeat},
		// stored perhaps
		{kerr.NotEnoughReplicasAfterAppend, core.ClassUnavailable, core.ScopeDestination, core.OutcomeUnknown, cureRepeat},
		{kerr.RequestTimedOut, core.ClassUnavailable, core.ScopeDestination, core.OutcomeUnknown, cureRepeat},
		{kerr.NetworkException, core.ClassUnavailable, core.ScopeDestination, core.OutcomeUnknown, cureLocate},
		{kerr.UnknownServerError, core.ClassTransient, core.ScopeMessage, core.OutcomeUnknown, cureNone},
		// a person has to act
		{kerr.UnknownTopicOrPartition, core.ClassMisconfigured, core.ScopeDestination, core.OutcomeRejected, cureLocate},
		{kerr.UnknownTopicID, core.ClassMisconfigured, core.ScopeDestination, core.OutcomeRejected, cureLocate},
		{kerr.TopicAuthorizationFailed, core.ClassMisconfigured, core.ScopeDestination, core.OutcomeRejected, cureNone},
		{kerr.InvalidTopicException, core.ClassMisconfigured, core.ScopeDestination, core.OutcomeRejected, cureNone},
		{kerr.InvalidTimestamp, core.ClassMisconfigured, core.ScopeDestination, core.OutcomeRejected, cureNone},
		{kerr.ClusterAuthorizationFailed, core.ClassMisconfigured, core.ScopeBroker, core.OutcomeRejected, cureNone},
		{kerr.SaslAuthenticationFailed, core.ClassMisconfigured, core.ScopeBroker, core.OutcomeRejected, cureNone},
		{kerr.InvalidRequiredAcks, core.ClassMisconfigured, core.ScopeBroker, core.OutcomeRejected, cureNone},
		// our producer id
		{kerr.OutOfOrderSequenceNumber, core.ClassUnavailable, core.ScopeBroker, core.OutcomeRejected, cureRenew},
		{kerr.InvalidProducerEpoch, core.ClassUnavailable, core.ScopeBroker, core.OutcomeRejected, cureRenew},
		{kerr.UnknownProducerID, core.ClassUnavailable, core.ScopeBroker, core.OutcomeRejected, cureRenew},
		{kerr.ProducerFenced, core.ClassUnavailable, core.ScopeBroker, core.OutcomeRejected, cureRenew},
		{kerr.DuplicateSequenceNumber, core.ClassTransient, core.ScopeMessage, core.OutcomeDelivered, cureNone},
		// the rest of the codes
		{kerr.ThrottlingQuotaExceeded, core.ClassThrottled, core.ScopeBroker, core.OutcomeRejected, cureNone},
		{kerr.CorruptMessage, core.ClassTransient, core.ScopeDestination, core.OutcomeRejected, cureRepeat},
		{kerr.CoordinatorNotAvailable, core.ClassUnavailable, core.ScopeBroker, core.OutcomeRejected, cureRepeat},
		{&kerr.Error{Message: "NEW_IN_2031", Code: 4711}, core.ClassTransient, core.ScopeMessage, core.OutcomeUnknown, cureNone},
		{&refusal{err: kerr.InvalidRecord}, core.ClassPermanent, core.ScopeMessage, core.OutcomeRejected, cureIsolate},
		// connections
		{dial, core.ClassUnavailable, core.ScopeDestination, core.OutcomeRejected, cureLocate},
		{&unsentError{dial}, core.ClassUnavailable, core.ScopeBroker, core.OutcomeRejected, cureLocate},
		{read, core.ClassUnavailable, core.ScopeDestination, core.OutcomeUnknown, cureLocate},
		{io.EOF, core.ClassUnavailable, core.ScopeDestination, core.OutcomeUnknown, cureLocate},
		{io.ErrUnexpectedEOF, core.ClassUnavailable, core.ScopeDestination, core.OutcomeUnknown, cureLocate},
		{errNoAnswer, core.ClassUnavailable, core.ScopeDestination, core.OutcomeUnknown, cureLocate},
		{errors.New("of the client"), core.ClassUnavailable, core.ScopeDestination, core.OutcomeUnknown, cureLocate},
		{kgo.ErrClientClosed, core.ClassUnavailable, core.ScopeBroker, core.OutcomeUnknown, cureNone},
		{x509.UnknownAuthorityError{}, core.ClassMisconfigured, core.ScopeBroker, core.OutcomeRejected, cureNone},
		{&credentialsError{errors.New("vault is sealed")}, core.ClassUnavailable, core.ScopeBroker, core.OutcomeRejected, cureNone},
		// our own
		{context.DeadlineExceeded, core.ClassUnavailable, core.ScopeDestination, core.OutcomeUnknown, cureNone},
		{context.Canceled, core.ClassUnavailable, core.ScopeDestination, core.OutcomeUnknown, cureNone},
		{&unsentError{context.Canceled}, core.ClassUnavailable, core.ScopeBroker, core.OutcomeRejected, cureNone},
		{&unsentError{kerr.RequestTimedOut}, core.ClassUnavailable, core.ScopeDestination, core.OutcomeRejected, cureRepeat},
		{errRecreated, core.ClassTransient, core.ScopeDestination, core.OutcomeRejected, cureNone},
	} {
		got := classify(fmt.Errorf("wrapped: %w", c.err))
		want := verdict{c.class, c.scope, got.code, c.outcome, c.cure}
		if got != want {
			t.Errorf("%v: %+v, want %+v", c.err, got, want)
		}
		if got.code == "" {
			t.Errorf("%v: no code", c.err)
		}
		if published := publishError(c.err); !errors.Is(published, c.err) || published.Code != got.code {
			t.Errorf("%v: wrapped as %v", c.err, published)
		}
	}
}
