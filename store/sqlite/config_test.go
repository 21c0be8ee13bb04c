package sqlite_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-outbox/outbox/store/sqlite"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]sqlite.Config{
		"sqlite:demo.db":                 {Path: "demo.db"},
		"sqlite:data/my%20demo.db":       {Path: "data/my demo.db"},
		"sqlite:///var/lib/app.db":       {Path: "/var/lib/app.db"},
		"sqlite:/var/lib/app.db?table=x": {Path: "/var/lib/app.db", Table: "x"},
		"sqlite:demo.db?table=events&payload=bytes&after_publish=delete&synchronous=normal&busy_timeout=3s": {
			Path: "demo.db", Table: "events", Payload: sqlite.Bytes, AfterPublish: sqlite.Delete,
			Synchronous: sqlite.Normal, BusyTimeout: 3 * time.Second,
		},
	} {
		if got, err := sqlite.ParseURL(raw); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", raw, got, err, want)
		}
	}
}

func TestParseURLFaults(t *testing.T) {
	t.Parallel()
	for raw, part := range map[string]string{
		"sqlite:demo.db?tabel=x":           `unknown parameter "tabel"`,
		"sqlite:demo.db?table=a&table=b":   "2 times",
		"sqlite:demo.db?payload=xml":       "Payload",
		"sqlite:demo.db?busy_timeout=soon": "busy_timeout",
		"sqlite:demo.db?busy_timeout=-1s":  "BusyTimeout",
		"sqlite:demo.db?table=%zz":         "parameters",
		"sqlite://demo.db":                 "sqlite:///absolute",
		"sqlite:":                          "no file name",
		"sqlite:demo.db#1":                 "%23",
		"sqlite::memory:":                  "Path",
		"postgres://h/db":                  "scheme",
		":":                                "url",
	} {
		if cfg, err := sqlite.ParseURL(raw); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %+v, %v; want %q in an error", raw, cfg, err, part)
		}
	}
}

func TestValidateReportsAllFaults(t *testing.T) {
	t.Parallel()
	if err := (sqlite.Config{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	bad := sqlite.Config{
		Path: "file:x?mode=memory", Table: strings.Repeat("x", 101), AfterPublish: "archive", Payload: "xml",
		BusyTimeout: time.Microsecond, Synchronous: "off",
	}
	err := bad.Validate()
	for _, path := range []string{"Path", "Table", "AfterPublish", "Payload", "BusyTimeout", "Synchronous"} {
		if err == nil || !strings.Contains(err.Error(), path+": ") {
			t.Errorf("%s is missing in %v", path, err)
		}
	}
}
