package notify_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-outbox/outbox/notify"
)

func TestConfig_NamesEveryFault(t *testing.T) {
	t.Parallel()
	const url = "https://hooks.example.com/TOKEN"
	for _, test := range []struct {
		cfg  notify.Config
		want []string // fields
	}{
		{notify.Config{URL: url}, nil},
		{notify.Config{URL: url, Secret: secret}, nil},
		{notify.Config{URL: url, Format: notify.Slack}, nil},
		{notify.Config{Format: notify.PagerDuty, Secret: "key"}, nil},
		{notify.Config{}, []string{"URL"}},
		{notify.Config{URL: "ftp://x/TOKEN"}, []string{"URL"}},
		{notify.Config{URL: "https:///TOKEN\x00"}, []string{"URL"}},
		{notify.Config{URL: url, Secret: "SECRET"}, []string{"Secret"}},
		{notify.Config{URL: url, Secret: "whsec_SECRET!!"}, []string{"Secret"}},
		{notify.Config{URL: url, Format: notify.Slack, Secret: "SECRET"}, []string{"Secret"}},
		{notify.Config{Format: notify.PagerDuty}, []string{"Secret"}},
		{
			notify.Config{URL: url, Format: "teams", MinInterval: -1, PausedFor: -1, Timeout: -1},
			[]string{"Format", "MinInterval", "PausedFor", "Timeout"},
		},
	} {
		_, err := notify.New(test.cfg)
		if (err != nil) != (len(test.want) > 0) {
			t.Errorf("%+v: %v", test.cfg, err)
			continue
		}
		for _, field := range test.want {
			if !strings.Contains(err.Error(), field+": ") {
				t.Errorf("%+v: %v; want a fault of %s", test.cfg, err, field)
			}
		}
		if err != nil {
			wantNone(t, "the error", err.Error(), "TOKEN", "SECRET")
		}
	}
}

// The example of Standard Webhooks, which its libraries are tested with; `openssl dgst -sha256 -mac HMAC` agrees.
func TestVerify_TakesWhatOthersSign(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		signed := time.Unix(1614265330, 0)
		advance(t, time.Until(signed))
		header := http.Header{}
		header.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
		header.Set("webhook-timestamp", "1614265330")
		header.Set("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
		body := []byte(`{"test": 2432232314}`)
		if err := notify.Verify(header, body, secret, time.Minute); err != nil {
			t.Error(err)
		}
		advance(t, 2*time.Minute)
		if err := notify.Verify(header, body, secret, time.Minute); !errors.Is(err, notify.ErrSignature) {
			t.Errorf("two minutes later: %v; want it to be refused", err)
		}
	})
}

func TestVerify(t *testing.T) {
	t.Parallel()
	got := tell(t, notify.Config{Secret: secret}, park("orders", "e1"))[0]
	const other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	changed := func(name, value string) http.Header {
		h := got.header.Clone()
		h.Set(name, value)
		return h
	}
	signature := got.header.Get("webhook-signature")
	for name, test := range map[string]struct {
		header http.Header
		body   string
		secret string
		ok     bool
	}{
		"as sent":               {got.header, string(got.body), secret, true},
		"without the prefix":    {got.header, string(got.body), strings.TrimPrefix(secret, "whsec_"), true},
		"one of two signatures": {changed("webhook-signature", "v1,AAAA "+signature), string(got.body), secret, true},
		"another body":          {got.header, string(got.body) + " ", secret, false},
		"another secret":        {got.header, string(got.body), other, false},
		"another id":            {changed("webhook-id", "msg_2"), string(got.body), secret, false},
		"another time":          {changed("webhook-timestamp", "1614265330"), string(got.body), secret, false},
		"no time":               {changed("webhook-timestamp", ""), string(got.body), secret, false},
		"no signature":          {changed("webhook-signature", ""), string(got.body), secret, false},
		"another scheme":        {changed("webhook-signature", "v2"+signature[2:]), string(got.body), secret, false},
	} {
		err := notify.Verify(test.header, []byte(test.body), test.secret, time.Minute)
		if test.ok != (err == nil) || err != nil && !errors.Is(err, notify.ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := notify.Verify(got.header, got.body, "not a secret", time.Minute); err == nil || errors.Is(err, notify.ErrSignature) {
		t.Errorf("with a secret that is none: %v", err)
	}
}

// Whoever prints a configuration, by whatever means, shows no secret.
func TestConfig_ShowsNoSecret(t *testing.T) {
	t.Parallel()
	log, said := logged()
	for _, cfg := range []notify.Config{
		{URL: "https://TOKEN@hooks.example.com/TOKEN?key=TOKEN", Secret: "SECRET"},
		{URL: "https://hooks.example.com:port/TOKEN", Secret: "SECRET"},
	} {
		encoded, err := json.Marshal(cfg.URL)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("config", "url", cfg.URL, "secret", cfg.Secret, "config", fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg))
		wantNone(t, "the configuration", said()+string(encoded), "TOKEN", "SECRET")
	}
	if got, want := notify.URL("https://hooks.example.com/TOKEN").String(), "https://hooks.example.com/***"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
