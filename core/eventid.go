package core

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// NewEventID returns a new UUIDv7 (RFC 9562) as text: 48 bits of time in milliseconds, then 74 random bits. Ids of one
// millisecond are in no order, and nothing relies on one. Safe for concurrent use.
func NewEventID() string {
	var id [16]byte
	_, _ = rand.Read(id[6:]) // never fails (crypto/rand)
	now := uint64(time.Now().UnixMilli())
	var stamp [8]byte
	binary.BigEndian.PutUint64(stamp[:], now)
	copy(id[:6], stamp[2:])
	id[6] = 0x70 | id[6]&0x0f
	id[8] = 0x80 | id[8]&0x3f
	var text [36]byte
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}
