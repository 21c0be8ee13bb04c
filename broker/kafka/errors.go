package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/core"
)

// cure is what may help against an error within the same call.
type cure uint8

const (
	cureNone    cure = iota
	cureRepeat       // the same request again, after a pause
	cureLocate       // find the leader anew, then as cureRepeat
	cureRenew        // another producer id, then as cureRepeat
	cureIsolate      // a smaller batch, to find the record that is refused
)

// cureSet is a set of cures other than cureNone, as bits.
type cureSet uint8

func (s *cureSet) add(c cure) {
	if c != cureNone {
		*s |= 1 << c
	}
}

func (s cureSet) has(c cure) bool { return s&(1<<c) != 0 }

// verdict is what an error means.
type verdict struct {
	class   core.Class
	scope   core.Scope
	code    string
	outcome core.Outcome // OutcomeRejected or OutcomeUnknown; OutcomeDelivered for an error that is none
	cure    cure
}

// unsentError marks an error from before anything was sent: of finding the topic or getting a producer id.
type unsentError struct{ err error }

func (e *unsentError) Error() string { return e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

// refusal is a broker's error for one partition, with what it said about it.
type refusal struct {
	err     error // a *kerr.Error
	detail  string
	records []int // the records at fault, by their place in the batch; empty when not said
}

func (e *refusal) Error() string {
	if e.detail == "" {
		return e.err.Error()
	}
	return e.err.Error() + " (" + e.detail + ")"
}
func (e *refusal) Unwrap() error { return e.err }

var (
	errNoAnswer    = errors.New("the broker's answer does not mention the partition")
	errRecreated   = errors.New("the topic was deleted and created again meanwhile")
	errEarlierOnes = errors.New("kafka: an earlier message of the key was not delivered")
)

// classify decides for every error what it is about, what is known of the records, and what may help.
func classify(err error) verdict {
	var coded *kerr.Error
	if errors.As(err, &coded) {
		v := classifyCode(coded)
		if errors.As(err, new(*unsentError)) && v.outcome == core.OutcomeUnknown {
			v.outcome = core.OutcomeRejected
		}
		return v
	}
	v := classifyConnection(err)
	if errors.As(err, new(*unsentError)) {
		v.outcome = core.OutcomeRejected
		if v.class == core.ClassUnavailable {
			v.scope = core.ScopeBroker // not one leader is missing: no broker answered
		}
	}
	return v
}

// classifyConnection is for errors that no broker has sent.
func classifyConnection(err error) verdict {
	var dial *net.OpError
	switch {
	// Without a connection nothing was sent. The leader may be moving to a broker that can be reached.
	// Before the timeouts, as a dial that takes too long looks like one.
	case errors.As(err, &dial) && dial.Op == "dial":
		return verdict{core.ClassUnavailable, core.ScopeDestination, "NO_CONNECTION", core.OutcomeRejected, cureLocate}
	// Ours: nothing is wrong with the message. What was sent may have been stored.
	case errors.Is(err, context.Canceled):
		return verdict{core.ClassUnavailable, core.ScopeDestination, "CANCELED", core.OutcomeUnknown, cureNone}
	case errors.Is(err, context.DeadlineExceeded):
		return verdict{core.ClassUnavailable, core.ScopeDestination, "TIMEOUT", core.OutcomeUnknown, cureNone}
	case errors.Is(err, core.ErrClosed), errors.Is(err, kgo.ErrClientClosed):
		return verdict{core.ClassUnavailable, core.ScopeBroker, "CLOSED", core.OutcomeUnknown, cureNone}
	// The topic id of our request is none any more: certainly refused, and the next call starts with the new topic.
	case errors.Is(err, errRecreated):
		return verdict{core.ClassTransient, core.ScopeDestination, "TOPIC_RECREATED", core.OutcomeRejected, cureNone}
	// The provider of credentials is the user's; it may be back soon, and no person can do more than it.
	case errors.As(err, new(*credentialsError)):
		return verdict{core.ClassUnavailable, core.ScopeBroker, "NO_CREDENTIALS", core.OutcomeRejected, cureNone}
	// A certificate, a name or a protocol that does not fit will not fit by itself. The handshake comes before any
	// request.
	case isTLSError(err):
		return verdict{core.ClassMisconfigured, core.ScopeBroker, "TLS", core.OutcomeRejected, cureNone}
	// The connection broke, or the leader is unknown to the client: the request may have been carried out.
	case errors.Is(err, io.EOF), errors.As(err, new(net.Error)), errors.Is(err, errNoAnswer):
		return verdict{core.ClassUnavailable, core.ScopeDestination, "NO_REPLY", core.OutcomeUnknown, cureLocate}
	// The client's other errors are of connections too, but of types that it keeps to itself.
	default:
		return verdict{core.ClassUnavailable, core.ScopeDestination, "CLIENT", core.OutcomeUnknown, cureLocate}
	}
}

func isTLSError(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) ||
		errors.As(err, new(tls.AlertError)) || errors.As(err, new(x509.UnknownAuthorityError)) ||
		errors.As(err, new(x509.HostnameError)) || errors.As(err, new(x509.CertificateInvalidError))
}

// classifyCode is for the error codes of brokers.
func classifyCode(err *kerr.Error) verdict {
	is := func(class core.Class, scope core.Scope, outcome core.Outcome, cure cure) verdict {
		return verdict{class, scope, err.Message, outcome, cure}
	}
	switch err {
	// The record, or the batch it stands in, is larger than the topic allows: alone in a batch it shows which.
	case kerr.MessageTooLarge, kerr.RecordListTooLarge:
		return is(core.ClassPermanent, core.ScopeMessage, core.OutcomeRejected, cureIsolate)
	// The broker validates records, for example that those of a compacted topic have a key; it refuses the batch.
	case kerr.InvalidRecord:
		return is(core.ClassPermanent, core.ScopeMessage, core.OutcomeRejected, cureIsolate)

	// Leadership is moving; the old leader has stored nothing.
	case kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.ReplicaNotAvailable, kerr.BrokerNotAvailable,
		kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.ListenerNotFound:
		return is(core.ClassUnavailable, core.ScopeDestination, core.OutcomeRejected, cureLocate)
	// The disk failed while or before it stored the batch; another replica becomes the leader.
	case kerr.KafkaStorageError:
		return is(core.ClassUnavailable, core.ScopeDestination, core.OutcomeUnknown, cureLocate)
	// Fewer replicas than min.insync.replicas: refused before anything was stored.
	case kerr.NotEnoughReplicas:
		return is(core.ClassUnavailable, core.ScopeDestination, core.OutcomeRejected, cureRepeat)
	// The leader has stored it but cannot promise that it stays.
	case kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut:
		return is(core.ClassUnavailable, core.ScopeDestination, core.OutcomeUnknown, cureRepeat)
	case kerr.NetworkException:
		return is(core.ClassUnavailable, core.ScopeDestination, core.OutcomeUnknown, cureLocate)
	// No coordinator for a new producer id yet.
	case kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.NotCoordinator,
		kerr.ConcurrentTransactions:
		return is(core.ClassUnavailable, core.ScopeBroker, core.OutcomeRejected, cureRepeat)

	// A topic that does not exist; brokers say so as well while they have not heard yet of a new one or a new leader.
	case kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID:
		return is(core.ClassMisconfigured, core.ScopeDestination, core.OutcomeRejected, cureLocate)
	// A person has to grant, rename or reconfigure something about this topic.
	case kerr.TopicAuthorizationFailed, kerr.InvalidTopicException, kerr.UnsupportedForMessageFormat,
		kerr.UnsupportedCompressionType, kerr.PolicyViolation:
		return is(core.ClassMisconfigured, core.ScopeDestination, core.OutcomeRejected, cureNone)
	// Batches carry the time of publishing, so it is this host's clock that the topic does not accept.
	case kerr.InvalidTimestamp:
		return is(core.ClassMisconfigured, core.ScopeDestination, core.OutcomeRejected, cureNone)
	// A person has to grant or reconfigure something about us: credentials, IDEMPOTENT_WRITE, versions.
	case kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism,
		kerr.IllegalSaslState, kerr.InvalidRequiredAcks, kerr.UnsupportedVersion:
		return is(core.ClassMisconfigured, core.ScopeBroker, core.OutcomeRejected, cureNone)

	// The leader does not know us as we think it should (it lost its log, or forgot us): nothing stored, start anew.
	case kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.UnknownProducerID,
		kerr.InvalidProducerIDMapping, kerr.ProducerFenced:
		return is(core.ClassUnavailable, core.ScopeBroker, core.OutcomeRejected, cureRenew)
	// A repeat of what was stored already.
	case kerr.DuplicateSequenceNumber:
		return is(core.ClassTransient, core.ScopeMessage, core.OutcomeDelivered, cureNone)

	case kerr.ThrottlingQuotaExceeded:
		return is(core.ClassThrottled, core.ScopeBroker, core.OutcomeRejected, cureNone)
	// Damaged on the way: the checksum does not fit.
	case kerr.CorruptMessage:
		return is(core.ClassTransient, core.ScopeDestination, core.OutcomeRejected, cureRepeat)
	// "Unexpected server error" and codes of the future: nothing is known. They count as the message's, so that one
	// that a broker chokes on is parked in the end.
	default:
		return is(core.ClassTransient, core.ScopeMessage, core.OutcomeUnknown, cureNone)
	}
}

// publishError wraps an error with its classification.
func publishError(err error) *core.PublishError {
	v := classify(err)
	return &core.PublishError{Class: v.class, Scope: v.scope, Code: v.code, Err: err}
}
