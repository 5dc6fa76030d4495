package config

import (
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

func load(env map[string]string) (Config, error) {
	return Load(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
}

func TestDefaults(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"unset": nil, "empty": {"PORT": "", "PARTS": " ", "LOG_LEVEL": "", "WAIT_MAX_MS": "", "DATABASE_URL": ""},
	} {
		c, err := load(env)
		want := Config{
			Port: 8080, BindAddress: netip.MustParseAddr("127.0.0.1"), MailFrom: "standmeet@localhost", MailSupplier: MailDirectory, SourceBaseURL: map[string]string{},
			S3Bucket: "standmeet",
			Parts:    Parts{true, true, true},
		}
		if err != nil || !reflect.DeepEqual(c, want) {
			t.Errorf("%s: %+v, %v; want %+v", name, c, err, want)
		}
	}
}

func TestEverything(t *testing.T) {
	c, err := load(map[string]string{
		"PORT": "0", "BIND_ADDRESS": "::", "PUBLIC_URL": "https://me.example.test/", "DATABASE_URL": "postgres://u:p@db:5432/x?sslmode=disable",
		"SMTP_URL": "smtps://u:p@mail.test:465", "MAIL_FROM": "hello@example.test", "S3_ENDPOINT": "http://s3:9000", "S3_BUCKET": "mine", "S3_REGION": "eu-west-1",
		"EGRESS_ALLOW": "10.1.2.3/8, Receiver.test,::1", "SOURCE_BASE_URL_LEVER": "http://127.0.0.1:9/lever/",
		"WAIT_MAX_MS": "500", "LOG_LEVEL": "WARN", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel:4318", "PARTS": "relay, workers",
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.SMTPURL.Host != "mail.test:465" || c.S3Endpoint.Host != "s3:9000" {
		t.Error("URLs:", c.SMTPURL, c.S3Endpoint)
	}
	c.SMTPURL, c.S3Endpoint = nil, nil
	want := Config{
		Port: 0, BindAddress: netip.IPv6Unspecified(), PublicURL: "https://me.example.test", DatabaseURL: "postgres://u:p@db:5432/x?sslmode=disable",
		MailFrom: "hello@example.test", MailSupplier: MailSMTP, S3Bucket: "mine", S3Region: "eu-west-1",
		Egress: Egress{Hosts: []string{"receiver.test"}, Networks: []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}},
		SourceBaseURL: map[string]string{"lever": "http://127.0.0.1:9/lever"},
		MaxWait:       500 * time.Millisecond, LogLevel: slog.LevelWarn, OTLPEndpoint: "http://otel:4318",
		Parts: Parts{Relay: true, Workers: true},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v\nwant %+v", c, want)
	}
	if c, err := load(map[string]string{"WAIT_MAX_MS": "0"}); err != nil || c.MaxWait >= 0 {
		t.Errorf("WAIT_MAX_MS=0: %v, %v", c.MaxWait, err)
	}
}

// Every variable at fault is named at once, and no secret is repeated.
func TestFaults(t *testing.T) {
	bad := map[string]string{
		"PORT": "65536", "BIND_ADDRESS": "localhost", "PUBLIC_URL": "example.test", "DATABASE_URL": "postgres://u:secret@:x/", "SMTP_URL": "http://u:secret@h",
		"MAIL_SUPPLIER": "post", "SES_ENDPOINT": "email.test",
		"MAIL_FROM": "Me <a@b.test>", "S3_ENDPOINT": "s3://bucket", "EGRESS_ALLOW": "ok.test,http://secret/", "WAIT_MAX_MS": "30001",
		"SOURCE_BASE_URL_ASHBY": "ashby", "LOG_LEVEL": "loud", "OTEL_EXPORTER_OTLP_ENDPOINT": ":", "PARTS": "gateway,web", "ENVIRONMENT": "prod",
	}
	_, err := load(bad)
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(bad) {
		t.Errorf("%d faults of %d: %v", len(lines), len(bad), err)
	}
	for name := range bad {
		if !strings.Contains("\n"+err.Error(), "\n"+name+" ") {
			t.Errorf("%s is not named", name)
		}
	}
	if strings.Contains(err.Error(), ":secret@") {
		t.Errorf("shows a password: %v", err)
	}
	for _, v := range []string{"-1", "1e3", "2000ms", "99999999999999999999"} {
		if _, err := load(map[string]string{"WAIT_MAX_MS": v}); err == nil {
			t.Errorf("WAIT_MAX_MS=%s is taken", v)
		}
	}
}

func TestProduction(t *testing.T) {
	env := map[string]string{"ENVIRONMENT": "production", "EGRESS_ALLOW": "10.0.0.0/8"}
	if _, err := load(env); err == nil || !strings.HasPrefix(err.Error(), "EGRESS_ALLOW ") {
		t.Errorf("production with EGRESS_ALLOW: %v", err)
	}
	delete(env, "EGRESS_ALLOW")
	if c, err := load(env); err != nil || !c.Production {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestMailSupplier(t *testing.T) {
	const smtp = "smtp://u:secret@mail.test"
	for name, c := range map[string]struct {
		env  map[string]string
		want MailSupplier // empty: refused
	}{
		"local":                    {nil, MailDirectory},
		"local, SMTP":              {map[string]string{"SMTP_URL": smtp}, MailSMTP},
		"local, SES":               {map[string]string{"MAIL_SUPPLIER": "SES"}, MailSES},
		"local, none":              {map[string]string{"MAIL_SUPPLIER": "none"}, MailNone},
		"production":               {map[string]string{"ENVIRONMENT": "production"}, MailNone},
		"production, SMTP":         {map[string]string{"ENVIRONMENT": "production", "SMTP_URL": smtp}, MailSMTP},
		"production, SES":          {map[string]string{"ENVIRONMENT": "production", "MAIL_SUPPLIER": "ses"}, MailSES},
		"a function, SMTP":         {map[string]string{"ENVIRONMENT": "production", "MAIL_SUPPLIER": "smtp"}, MailSMTP},
		"production, directory":    {map[string]string{"ENVIRONMENT": "production", "MAIL_SUPPLIER": "directory"}, ""},
		"two at once":              {map[string]string{"SMTP_URL": smtp, "MAIL_SUPPLIER": "ses"}, ""},
		"none, but SMTP is set up": {map[string]string{"SMTP_URL": smtp, "MAIL_SUPPLIER": "none"}, ""},
	} {
		got, err := load(c.env)
		if c.want == "" {
			if err == nil || !strings.HasPrefix(err.Error(), "MAIL_SUPPLIER ") || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", name, err)
			}
		} else if err != nil || got.MailSupplier != c.want {
			t.Errorf("%s: %q, %v", name, got.MailSupplier, err)
		}
	}
}
