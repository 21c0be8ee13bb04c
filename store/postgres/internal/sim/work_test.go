package sim_test

import (
	"errors"
	"math/rand/v2"
	"time"
)

var (
	errConnection = errors.New("the connection was lost")
	errIdle       = errors.New("idle in transaction for too long")
)

// statement is one statement of a transaction. It returns false when it has to wait for a lock, and is run again.
type statement func(t *tx) bool

// work is a transaction under way at the server: each statement is a moment, and so is the commit.
type work struct {
	b          *model
	name       string
	r          *rand.Rand
	t          *tx
	statements []statement
	end        func(error)
	client     *call         // nil for people
	idle       time.Duration // how long the server waits for a client that is stopped in the middle; 0 for ever
	stalled    bool
}

// transact begins the work. end is called at the moment of the commit, or when it came to nothing.
func (b *model) transact(k *work) {
	if b.down {
		k.end(errConnection)
		return
	}
	k.b, k.t = b, b.db.begin()
	k.goOn()
}

func (k *work) goOn() {
	k.b.w.after(time.Duration(1+k.r.IntN(4))*grain, k.name, k.step)
}

func (k *work) step() {
	switch {
	case k.t.over: // by the server
		return
	case k.b.db != k.t.db || k.b.down:
		k.abort(errConnection)
	case k.client != nil && k.client.brokenOff():
		k.abort(errConnection)
	case k.client != nil && k.client.split && k.client.p.paused:
		k.stall()
	case len(k.statements) == 0:
		k.t.end(true)
		k.end(nil)
	default:
		if k.statements[0](k.t) {
			k.statements = k.statements[1:]
		}
		k.goOn()
	}
}

func (k *work) abort(err error) {
	k.t.end(false)
	k.end(err)
}

// stall waits for the rest of the request.
func (k *work) stall() {
	if k.idle > 0 {
		k.b.w.after(k.idle, k.name+" idle", func() {
			if k.stalled && !k.t.over {
				k.b.w.fault("settle ended by the server, idle")
				k.abort(errIdle)
			}
		})
	}
	k.stalled = true
	k.client.p.stall(func() {
		k.stalled = false
		k.step()
	})
}
