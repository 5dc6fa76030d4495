package egress

import (
	"errors"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"

	"standmeet/shared/config"
)

func lines(t *testing.T, name string) (out []string) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" && !strings.HasPrefix(line, "# ") {
			out = append(out, line)
		}
	}
	return out
}

// refusal is the *Refused that err must be.
func refusal(t *testing.T, what string, err error) *Refused {
	t.Helper()
	var r *Refused
	if !errors.As(err, &r) {
		t.Fatalf("%s: %v, want a refusal", what, err)
	}
	if r.Code == "" || !strings.HasSuffix(r.Reason, ".") {
		t.Errorf("%s: code %q, reason %q", what, r.Code, r.Reason)
	}
	return r
}

func TestHostileURLs(t *testing.T) {
	t.Parallel()
	all := lines(t, "hostile-urls.txt")
	if len(all) < 60 {
		t.Fatalf("%d addresses, want at least 60", len(all))
	}
	for _, line := range all {
		raw, code, _ := strings.Cut(line, "\t")
		u, err := Rules{}.URL(raw)
		if err == nil {
			t.Errorf("%s: admitted as %s", raw, u)
			continue
		}
		if r := refusal(t, raw, err); r.Code != code {
			t.Errorf("%s: %s, want %s", raw, r.Code, code)
		}
	}
}

// TestCaseURLs: W2, with https too, so that it isn't http that is refused.
func TestCaseURLs(t *testing.T) {
	t.Parallel()
	for _, raw := range lines(t, "ssrf-urls.txt") {
		for _, spelling := range []string{raw, strings.Replace(raw, "http://", "https://", 1)} {
			if u, err := (Rules{}).URL(spelling); err == nil {
				t.Errorf("%s: admitted as %s", spelling, u)
			} else if r := refusal(t, spelling, err); strings.HasPrefix(spelling, "http") && (r.Code == "url_https" || r.Code == "url_scheme") {
				t.Errorf("%s: refused for its scheme alone", spelling)
			}
		}
	}
}

func TestMoreHostileURLs(t *testing.T) {
	t.Parallel()
	for raw, code := range map[string]string{
		"": "url_length",
		"https://example.com/" + strings.Repeat("a", MaxURL):                      "url_length",
		"https://example.com/" + strings.Repeat("日", 600):                         "url_length", // once it is escaped
		"https://" + strings.Repeat("a", 64) + ".com/":                            "url_host",
		"https://" + strings.Repeat("abcdefgh.", 30) + "com/":                     "url_host",
		"https://example.com/\r\nHost: 127.0.0.1":                                 "url_characters",
		"https://example.com/\x00":                                                "url_characters",
		"\thttps://example.com/":                                                  "url_characters",
		"https://example.com/\xff":                                                "url_characters",
		"https://example.com/\x7f":                                                "url_characters",
		"https://example.com:443:80/":                                             "url_malformed",
		"https://lo\u200bcalhost/":                                                "name_internal", // a zero-width space goes
		"https://local\u00adhost/":                                                "name_internal", // a soft hyphen too
		"https://xn--/":                                                           "url_host",
		"https://\u0661\u0662\u0667.0.0.1/":                                       "url_host", // Arabic digits
		"https://[fe80::1%25" + strings.Repeat("a", 10) + "]/":                    "url_host",
		"https://127.0.0.1?@example.com/":                                         "address_loopback",
		"https://127.0.0.1#@example.com/":                                         "url_fragment",
		"https://127.0.0.1;@example.com/":                                         "url_credentials",
		"https://example.com\u2044@127.0.0.1/":                                    "url_malformed",
		"https://example.com\uff0f.localhost/":                                    "url_host", // a full-width slash
		"https://example.com\uff20127.0.0.1/":                                     "url_host", // a full-width @
		"https://[0000:0000:0000:0000:0000:ffff:7f00:0001]/":                      "address_embedded",
		"https://[2002:7f00:1::]:65535/":                                          "address_reserved",
		"https://[64:ff9b::a9fe:a9fe]:443/":                                       "address_reserved",
		"https://[2600:1f18:0:0:100:5efe:169.254.169.254]/latest/meta-data/":      "address_embedded",
		"https://metadata.google.internal\uff0e/computeMetadata/v1/instance/":     "url_host",
		"https://169.254.169.254.nip.io:2379/":                                    "url_port",
		"https://\u2488.0.0.1/":                                                   "url_host", // "1." in one sign
		"https://\U0001d7cf\U0001d7d0\U0001d7d5.\U0001d7ce.\U0001d7ce.\U0001d7cf": "url_odd_address",
	} {
		if u, err := (Rules{}).URL(raw); err == nil {
			t.Errorf("%.80q: admitted as %.80s", raw, u)
		} else if r := refusal(t, raw, err); r.Code != code {
			t.Errorf("%.80q: %s, want %s", raw, r.Code, code)
		}
	}
}

func TestGoodURLs(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://example.com":                           "https://example.com",
		"https://Example.COM:443/Hook?a=B&c=%20":        "https://example.com/Hook?a=B&c=%20",
		"HTTPS://hooks.example.com:8443/h":              "https://hooks.example.com:8443/h",
		"https://hooks.example.com:3000/h":              "https://hooks.example.com:3000/h",
		"https://8.8.8.8/h":                             "https://8.8.8.8/h",
		"https://[2606:4700:4700:0::1111]/h":            "https://[2606:4700:4700::1111]/h",
		"https://bücher.example.com/ü":                  "https://xn--bcher-kva.example.com/%C3%BC",
		"https://日本.jp/":                                "https://xn--wgv71a.jp/",
		"https://аpple.com/":                            "https://xn--pple-43d.com/", // a Cyrillic letter shows
		"https://fass.example.com/a/../b":               "https://fass.example.com/a/../b",
		"https://127.0.0.1.nip.io/h":                    "https://127.0.0.1.nip.io/h", // for the connection to refuse
		"https://localhost.example.com/@127.0.0.1:22/":  "https://localhost.example.com/@127.0.0.1:22/",
		"https://example.com/?u=https://user:pw@x.test": "https://example.com/?u=https://user:pw@x.test",
	} {
		u, err := Rules{}.URL(raw)
		if err != nil || u.String() != want {
			t.Errorf("%s: %v, %v; want %s", raw, u, err, want)
			continue
		}
		if again, err := (Rules{}).URL(u.String()); err != nil || again.String() != want {
			t.Errorf("%s: read again: %v, %v", want, again, err)
		}
	}
}

func TestAllowOpensWhatItNames(t *testing.T) {
	t.Parallel()
	r := New(config.Egress{
		Hosts:    []string{"receiver", "hooks.test", "my_sink"},
		Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/30"), netip.MustParsePrefix("fd00::/64")},
	})
	for _, raw := range []string{
		"http://receiver/h", "http://RECEIVER:9000/h", "https://hooks.test:22/h", "http://my_sink:6379/",
		"http://127.0.0.1:80/h", "http://127.0.0.3:5432/h", "https://[fd00::7]/h",
	} {
		if _, err := r.URL(raw); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
	for raw, code := range map[string]string{
		"http://a.receiver/h":         "url_https",
		"http://hooks.test.evil.com/": "url_https",
		"http://sub.hooks.test/h":     "name_internal",
		"http://example.com/h":        "url_https",
		"https://127.0.0.4/h":         "address_loopback",
		"https://[fd00:0:0:1::7]/h":   "address_private",
		"http://localhost/h":          "name_internal",
		"http://127.1/h":              "url_odd_address",
		"http://2130706433/h":         "url_odd_address",
		"http://[::ffff:127.0.0.1]/h": "address_embedded",
		"http://[::1]/h":              "address_loopback",
		"http://u@receiver/h":         "url_credentials",
		"http://receiver:0/h":         "url_port",
		"ftp://receiver/h":            "url_scheme",
	} {
		if u, err := r.URL(raw); err == nil {
			t.Errorf("%s: admitted as %s", raw, u)
		} else if got := refusal(t, raw, err); got.Code != code {
			t.Errorf("%s: %s, want %s", raw, got.Code, code)
		}
	}
	if err := r.Addr(netip.MustParseAddr("::ffff:127.0.0.2")); err != nil {
		t.Errorf("a mapped address that a lookup gave counts as IPv4: %v", err)
	}
}

func TestAddr(t *testing.T) {
	t.Parallel()
	for _, a := range []string{
		"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "168.63.129.17", "223.255.255.254",
		"2606:4700:4700::1111", "2a00:1450:4001::1", "2001:4860:4860::8888", "2001:200::1", "::ffff:1.1.1.1",
	} {
		if err := (Rules{}).Addr(netip.MustParseAddr(a)); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
	for _, a := range []string{
		"::ffff:127.0.0.1", "::ffff:168.63.129.16", "::ffff:0:0", "2606:4700::1%eth0", "fe80::1%eth0", "febf::1", "1fff::1", "4000::1",
	} {
		_ = refusal(t, a, Rules{}.Addr(netip.MustParseAddr(a)))
	}
	if err := (Rules{}).Addr(netip.Addr{}); err == nil {
		t.Error("the zero address is admitted")
	}
}

// FuzzURL: what is admitted reads the same for whoever reads it again, and its
// host is a name or a public address.
func FuzzURL(f *testing.F) {
	for _, raw := range []string{
		"https://example.com:8443/h?x=1", "https://user@127.1/", "https://[::ffff:7f00:1]/", "https://①②⑦.0.0.1/", "https://a.b\\@c/",
		"https://xn--bcher-kva.example/%zz", "http://localhost:1/#x", "https://[fe80::1%25eth0]/",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := Rules{}.URL(raw)
		if err != nil {
			var r *Refused
			if !errors.As(err, &r) || r.Code == "" || r.Reason == "" {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		text := u.String()
		again, err := Rules{}.URL(text)
		if err != nil || again.String() != text {
			t.Fatalf("%q gives %q, that gives %v, %v", raw, text, again, err)
		}
		plain, err := url.Parse(text)
		if err != nil || plain.Scheme != "https" || plain.User != nil || plain.Fragment != "" {
			t.Fatalf("%q gives %q: %v", raw, text, err)
		}
		host := plain.Hostname()
		if strings.ContainsFunc(host, func(c rune) bool { return c > '~' || c <= ' ' || c >= 'A' && c <= 'Z' }) {
			t.Fatalf("%q gives host %q", raw, host)
		}
		if addr, err := netip.ParseAddr(host); err == nil {
			if err := (Rules{}).Addr(addr); err != nil || addr.Is4In6() {
				t.Fatalf("%q gives address %s: %v", raw, addr, err)
			}
		}
	})
}

// FuzzAddr: what is admitted is global unicast to the standard library too, and
// holds no IPv4 address that a translator or tunnel would take out of it.
func FuzzAddr(f *testing.F) {
	for _, a := range []string{"8.8.8.8", "127.0.0.1", "2606:4700::1", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1", "2600::5efe:7f00:1"} {
		f.Add(netip.MustParseAddr(a).AsSlice())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		addr, ok := netip.AddrFromSlice(b)
		if !ok || (Rules{}).Addr(addr) != nil {
			return
		}
		addr = addr.Unmap()
		if !addr.IsGlobalUnicast() || addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsMulticast() {
			t.Fatal(addr)
		}
		special := []string{"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4", "::/3", "4000::/2", "8000::/1", "2001::/32", "2002::/16"}
		for _, s := range special {
			if netip.MustParsePrefix(s).Contains(addr) {
				t.Fatalf("%s of %s", addr, s)
			}
		}
		if addr.Is6() {
			if b := addr.As16(); b[10] == 0x5e && b[11] == 0xfe && b[9] == 0 && (b[8] == 0 || b[8] == 2) {
				t.Fatal(addr)
			}
		}
	})
}
