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
	binary.BigEndian.PutUint16(id[0:], uint16(time.Now().UnixMilli()>>32))
	binary.BigEndian.PutUint32(id[2:], uint32(time.Now().UnixMilli())) //nolint:gosec // the low half
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
