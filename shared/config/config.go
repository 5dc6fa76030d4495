// Package config reads the environment once into one validated struct. No other
// package looks at the environment.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"standmeet/shared/email"
	"standmeet/shared/secret"
)

// Config is everything that a process may be told. Load fills in the defaults,
// which are given in brackets here. WithSecrets takes some of them from AWS Secrets Manager.
type Config struct {
	// Port is PORT, the gateway's TCP port [8080]; 0 takes a free one.
	Port int
	// BindAddress is BIND_ADDRESS, the IP address that the gateway listens on
	// [127.0.0.1]; 0.0.0.0 opens it to other machines.
	BindAddress netip.Addr
	// PublicURL is PUBLIC_URL, the address that people reach the gateway by,
	// without a final slash [empty: the gateway's own].
	PublicURL string
	// DatabaseURL is DATABASE_URL [empty: an embedded server].
	DatabaseURL string
	// MailSupplier is MAIL_SUPPLIER [smtp when SMTP_URL is set, else directory, in
	// production none].
	MailSupplier MailSupplier
	// SMTPURL is SMTP_URL, "smtp://user:password@host:587" or "smtps://…:465". Only
	// workers need it.
	SMTPURL *url.URL
	// SESRegion is SES_REGION, for MAIL_SUPPLIER=ses [empty: the AWS SDK's, from
	// AWS_REGION]. The SDK finds credentials by itself.
	SESRegion string
	// SESEndpoint is SES_ENDPOINT, an http or https URL [nil: the region's].
	SESEndpoint *url.URL
	// MailFrom is MAIL_FROM, the address that mail comes from [standmeet@localhost].
	MailFrom string
	// SecretKey is SECRET_KEY, a comma list of keys of at least 32 bytes in base64:
	// access codes and the like are made with the first, and the others still find
	// those made before [empty: one that is kept with the embedded server's data].
	SecretKey secret.Keys
	// S3Endpoint is S3_ENDPOINT, an http or https URL [nil: blobs are files, in
	// production S3 of the region].
	S3Endpoint *url.URL
	// S3Bucket is S3_BUCKET [standmeet].
	S3Bucket string
	// S3Region is S3_REGION [empty: the AWS SDK's, from AWS_REGION].
	S3Region string
	// Egress is EGRESS_ALLOW. It must be empty in production.
	Egress Egress
	// SourceBaseURL holds each SOURCE_BASE_URL_<KIND> by its kind of [SourceKinds].
	SourceBaseURL map[string]string
	// MaxWait is WAIT_MAX_MS, 0 to 30,000: no request waits longer for other work.
	// As in op.Server, 0 is each operation's own limit (2 s for most), which is
	// the default, and negative is no waiting at all, which WAIT_MAX_MS=0 asks for.
	MaxWait time.Duration
	// LogLevel is LOG_LEVEL: debug, info, warn or error [info].
	LogLevel slog.Level
	// OTLPEndpoint is OTEL_EXPORTER_OTLP_ENDPOINT [empty: no telemetry].
	OTLPEndpoint string
	// Parts is PARTS, a comma list [all].
	Parts Parts
	// Production is ENVIRONMENT=production; the other value is local [local].
	Production bool
}

// MailSupplier is what takes mails.
type MailSupplier string

// The mail suppliers. Without one no mail is asked for that somebody waits for:
// nothing is approved. MailDirectory delivers to nobody; production refuses it.
const (
	MailSMTP      MailSupplier = "smtp"
	MailSES       MailSupplier = "ses"
	MailDirectory MailSupplier = "directory"
	MailNone      MailSupplier = "none"
)

// Parts says which parts of the system one process runs.
type Parts struct{ Gateway, Relay, Workers bool }

// String is a comma list, as PARTS takes it.
func (p Parts) String() string {
	var names []string
	for _, part := range []struct {
		name string
		on   bool
	}{{"gateway", p.Gateway}, {"relay", p.Relay}, {"workers", p.Workers}} {
		if part.on {
			names = append(names, part.name)
		}
	}
	return strings.Join(names, ", ")
}

// Egress lists the private destinations that outgoing requests may reach.
type Egress struct {
	Hosts    []string // lower case, without a port
	Networks []netip.Prefix
}

// SourceKinds are the job boards whose API has an address of its own.
func SourceKinds() []string {
	return []string{"greenhouse", "lever", "ashby", "workable", "smartrecruiters", "remoteok"}
}

// Load reads what lookup (os.LookupEnv) knows. An empty variable counts as one
// that isn't set. The error joins every fault, one line each, beginning with the
// variable's name; it never holds a value that may be secret.
func Load(lookup func(string) (string, bool)) (Config, error) {
	r := reader{lookup: lookup}
	c := Config{
		Port:          r.integer("PORT", 8080, 0, 65535),
		BindAddress:   r.ip("BIND_ADDRESS", netip.AddrFrom4([4]byte{127, 0, 0, 1})),
		DatabaseURL:   r.database("DATABASE_URL"),
		SMTPURL:       r.address("SMTP_URL", "smtp", "smtps"),
		SESRegion:     r.get("SES_REGION"),
		SESEndpoint:   r.address("SES_ENDPOINT", "http", "https"),
		MailFrom:      r.mail("MAIL_FROM", "standmeet@localhost"),
		S3Endpoint:    r.address("S3_ENDPOINT", "http", "https"),
		S3Bucket:      cmp.Or(r.get("S3_BUCKET"), "standmeet"),
		S3Region:      r.get("S3_REGION"),
		Egress:        r.egress("EGRESS_ALLOW"),
		SourceBaseURL: map[string]string{},
		MaxWait:       r.wait("WAIT_MAX_MS"),
		LogLevel:      r.level("LOG_LEVEL"),
		Parts:         r.parts("PARTS"),
		Production:    r.oneOf("ENVIRONMENT", "local", "production") == "production",
	}
	if u := r.address("PUBLIC_URL", "http", "https"); u != nil {
		c.PublicURL = strings.TrimRight(u.String(), "/")
	}
	if u := r.address("OTEL_EXPORTER_OTLP_ENDPOINT", "http", "https"); u != nil {
		c.OTLPEndpoint = u.String()
	}
	if keys := r.get("SECRET_KEY"); keys != "" {
		var err error
		if c.SecretKey, err = secret.ParseKeys(keys); err != nil {
			r.fail("SECRET_KEY", "%v", err)
		}
	}
	for _, kind := range SourceKinds() {
		if u := r.address("SOURCE_BASE_URL_"+strings.ToUpper(kind), "http", "https"); u != nil {
			c.SourceBaseURL[kind] = strings.TrimRight(u.String(), "/")
		}
	}
	c.MailSupplier = r.mailSupplier(c)
	if c.Production && (len(c.Egress.Hosts) > 0 || len(c.Egress.Networks) > 0) {
		r.fail("EGRESS_ALLOW", "is refused in production")
	}
	return c, errors.Join(r.faults...)
}

type reader struct {
	lookup func(string) (string, bool)
	faults []error
}

func (r *reader) fail(name, format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf(name+" "+format, args...))
}

func (r *reader) get(name string) string {
	value, ok := r.lookup(name)
	if !ok {
		return ""
	}
	return strings.TrimSpace(value)
}

func (r *reader) integer(name string, unset, least, most int) int {
	value := r.get(name)
	if value == "" {
		return unset
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		r.fail(name, "must be a whole number from %d to %d, not %q", least, most, value)
	}
	return n
}

func (r *reader) wait(name string) time.Duration {
	ms := r.integer(name, -1, 0, 30_000)
	switch ms {
	case -1:
		return 0
	case 0:
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}

// address doesn't show the value: it may hold a password.
func (r *reader) address(name string, schemes ...string) *url.URL {
	value := r.get(name)
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil || !slices.Contains(schemes, u.Scheme) || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		r.fail(name, "must be a URL like %s://host:port", schemes[0])
		return nil
	}
	return u
}

func (r *reader) ip(name string, unset netip.Addr) netip.Addr {
	value := r.get(name)
	if value == "" {
		return unset
	}
	a, err := netip.ParseAddr(value)
	if err != nil {
		r.fail(name, "must be an IP address, not %q", value)
	}
	return a
}

func (r *reader) database(name string) string {
	value := r.get(name)
	if value == "" {
		return ""
	}
	if _, err := pgx.ParseConfig(value); err != nil {
		r.fail(name, "must be a PostgreSQL URL like postgres://user:password@host:5432/database")
	}
	return value
}

func (r *reader) mail(name, unset string) string {
	value := r.get(name)
	if value == "" {
		return unset
	}
	a, err := email.Parse(value)
	if err != nil {
		r.fail(name, "must be a plain e-mail address, not %q", value)
	}
	return a
}

func (r *reader) mailSupplier(c Config) MailSupplier {
	const name = "MAIL_SUPPLIER"
	unset := MailDirectory
	switch {
	case r.get("SMTP_URL") != "":
		unset = MailSMTP
	case c.Production:
		unset = MailNone
	}
	if r.get(name) == "" {
		return unset
	}
	chosen := MailSupplier(r.oneOf(name, string(MailSMTP), string(MailSES), string(MailDirectory), string(MailNone)))
	switch {
	case unset == MailSMTP && slices.Contains([]MailSupplier{MailSES, MailDirectory, MailNone}, chosen):
		r.fail(name, "is %s, but SMTP_URL is set: unset one of them", chosen)
	case c.Production && chosen == MailDirectory:
		r.fail(name, "must not be directory in production: nobody would get the mails")
	}
	return chosen
}

func (r *reader) level(name string) slog.Level {
	switch r.oneOf(name, "info", "debug", "warn", "error") {
	case "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	}
	return slog.LevelInfo
}

// oneOf takes the first word when the variable isn't set.
func (r *reader) oneOf(name string, words ...string) string {
	value := strings.ToLower(r.get(name))
	switch {
	case value == "":
		return words[0]
	case !slices.Contains(words, value):
		r.fail(name, "must be one of %s, not %q", strings.Join(words, ", "), value)
	}
	return value
}

func (r *reader) list(name string) []string {
	var items []string
	for item := range strings.SplitSeq(r.get(name), ",") {
		if item = strings.ToLower(strings.TrimSpace(item)); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func (r *reader) egress(name string) (e Egress) {
	for _, item := range r.list(name) {
		if prefix, err := netip.ParsePrefix(item); err == nil {
			e.Networks = append(e.Networks, prefix.Masked())
		} else if addr, err := netip.ParseAddr(item); err == nil {
			e.Networks = append(e.Networks, netip.PrefixFrom(addr, addr.BitLen()))
		} else if _, _, err := net.SplitHostPort(item); err == nil || strings.ContainsAny(item, "/:@*? ") {
			r.fail(name, "must list host names, addresses or networks like 10.0.0.0/8, not %q", item)
		} else {
			e.Hosts = append(e.Hosts, item)
		}
	}
	return e
}

func (r *reader) parts(name string) (p Parts) {
	items := r.list(name)
	if len(items) == 0 {
		return Parts{true, true, true}
	}
	for _, item := range items {
		switch item {
		case "gateway":
			p.Gateway = true
		case "relay":
			p.Relay = true
		case "workers":
			p.Workers = true
		default:
			r.fail(name, "must list gateway, relay or workers, not %q", item)
		}
	}
	return p
}
