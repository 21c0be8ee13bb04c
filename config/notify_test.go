package config

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-outbox/outbox/notify"
)

func TestNotify(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	const url, secret = "https://hooks.example.com/TOKEN", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	for _, test := range []struct {
		text    string
		environ []string
		want    notify.Config
	}{
		{`notify: {url: "` + url + `"}`, nil, notify.Config{URL: url, Name: "outbox"}},
		{
			`{dispatcher: {name: shop}, notify: {url: "${HOOK}", secret: "${KEY}", paused_for: 1m, min_interval: 2m, timeout: 3s}}`,
			[]string{"HOOK=" + url, "KEY=" + secret},
			notify.Config{URL: url, Secret: secret, Name: "shop", PausedFor: time.Minute, MinInterval: 2 * time.Minute, Timeout: 3 * time.Second},
		},
		{
			`{dispatcher: {name: shop}, notify: {format: slack, name: other}}`,
			[]string{"OUTBOX_NOTIFY_FORMAT=pagerduty", "OUTBOX_NOTIFY_SECRET=key"},
			notify.Config{Format: notify.PagerDuty, Secret: "key", Name: "other"},
		},
		{``, []string{"OUTBOX_NOTIFY_URL=" + url}, notify.Config{URL: url, Name: "outbox"}},
	} {
		test.want.Logger = log
		got, is := mustLoad(t, test.text, test.environ...).Notify(log)
		if !is || got != test.want {
			t.Errorf("%s and %v give %+v, %t; want %+v", test.text, test.environ, got, is, test.want)
		}
	}
	if got, is := mustLoad(t, "dispatcher: {name: shop}").Notify(log); is {
		t.Errorf("without the section there is %+v", got)
	}
}

func TestNotifyIsStrict(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"notify:":                                       "1:8 notify.url: must be the http or https URL of the webhook",
		"notify: {url: ftp://TOKEN}":                    "1:10 notify.url: must be the http or https URL of the webhook",
		"notify: https://h/TOKEN":                       "1:9 notify: must have keys below it: url, secret, format, name, paused_for, min_interval, timeout",
		"notify: {urls: x, url: https://h/TOKEN}":       `1:10 unknown key "notify.urls"; did you mean "url"?`,
		"notify: {url: https://h, client: x}":           `1:26 unknown key "notify.client"; known are url, secret, format, name, paused_for, min_interval, timeout`,
		"notify: {url: https://h, format: teams}":       `1:26 notify.format: unknown "teams"; use generic, slack or pagerduty`,
		"notify: {url: https://h, secret: TOKEN}":       "1:26 notify.secret: must be whsec_ and the base64 of 24 to 64 random bytes: `openssl rand -base64 32`",
		"notify: {format: pagerduty}":                   "1:9 notify.secret: is missing; give the integration key of the PagerDuty service",
		"notify: {url: https://h, timeout: 5}":          `1:35 notify.timeout: "5" has no unit; write 5ms, 5s or 5m`,
		"notify: {url: https://h, min_interval: 0s}":    "1:40 notify.min_interval: 0s would mean the default, 1m0s; leave the key out for that, or say another value",
		"notify: {url: https://h, paused_for: -1m}":     "1:26 notify.paused_for: -1m0s is negative",
		"notify: {url: \"${HOOK}\", paused_for: TOKEN}": `1:38 notify.paused_for: "TOKEN" is not a duration such as 250ms, 5s or 1m30s`,
	} {
		_, err := load(text, "HOOK=https://h/hunter2")
		if got := lines(t, err); !slices.Contains(got, "outbox.yaml:"+want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	_, err := load("", "OUTBOX_NOTIFY_URI=https://h/hunter2")
	if got := lines(t, err); len(got) != 1 || !strings.Contains(got[0], "OUTBOX_NOTIFY_URL") || strings.Contains(got[0], "hunter2") {
		t.Errorf("got %q; want what the variable may mean", got)
	}
}

// What is printed shows where messages go, and no secret. It can be read again.
func TestNotifyPrinted(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
dispatcher: {name: shop}
notify:
  url: "https://hooks.example.com/services/hunter2?key=hunter2"
  secret: "${KEY}"
  format: pagerduty
`, "KEY=hunter2")
	var all bytes.Buffer
	slog.New(slog.NewTextHandler(&all, nil)).Info("config", "config", c)
	given, _ := c.Notify(nil)
	fmt.Fprintf(&all, "%v %+v %#v %+v %#v", c, c, c, given, given)
	if strings.Contains(all.String(), "hunter2") {
		t.Errorf("a secret in %s", &all)
	}
	printed := strings.Join(strings.Fields(c.String()), " ")
	for _, want := range []string{
		"url: https://hooks.example.com/*** # outbox.yaml:4:8", "secret: '***' # outbox.yaml:5:11", "format: pagerduty # outbox.yaml:6:11",
		"name: shop # default", "paused_for: 5m0s # default", "min_interval: 1m0s # default", "timeout: 10s # default",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("lacks %q in\n%s", want, c)
		}
	}
	if _, err := load(c.String()); err != nil {
		t.Errorf("what is printed cannot be read: %v", err)
	}
}
