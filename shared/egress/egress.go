// Package egress decides which addresses that owners give (webhooks, feeds) may
// be asked: only public ones, and what EGRESS_ALLOW names. It never looks a name
// up: what a name leads to is for workers to check, when they connect.
package egress

import (
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"code.dny.dev/ssrf"
	"golang.org/x/net/idna"

	"standmeet/shared/config"
)

// MaxURL is the most that an address may have, in bytes, as given and as kept.
const MaxURL = 2048

// Refused says why an address may not be asked.
type Refused struct {
	// Code is stable snake_case.
	Code string
	// Reason is one plain sentence for the owner. It never tells what an internal
	// name leads to.
	Reason string
}

// Error gives code and reason.
func (r *Refused) Error() string { return "egress: " + r.Code + ": " + r.Reason }

// Rules say what may be asked. The zero Rules admit public addresses alone.
type Rules struct {
	hosts    []string
	networks []netip.Prefix
}

// New makes the rules that allow opens what it names in: a name, whatever it
// leads to, and a network, whoever leads there; on each port and without TLS.
func New(allow config.Egress) Rules {
	return Rules{hosts: slices.Clone(allow.Hosts), networks: slices.Clone(allow.Networks)}
}

// Opens reports that host, a name in lower case, is one that EGRESS_ALLOW names:
// what it leads to needs no check.
func (r Rules) Opens(host string) bool { return slices.Contains(r.hosts, host) }

// URL gives raw as it is to be kept and asked: its host in ASCII and lower case,
// without a port that goes without saying. The error is a *Refused. It looks at
// the spelling and at literal addresses only.
func (r Rules) URL(raw string) (*url.URL, error) {
	if raw == "" || len(raw) > MaxURL {
		return nil, &Refused{"url_length", "The address must have 1 to " + strconv.Itoa(MaxURL) + " bytes."}
	}
	// A browser takes a backslash for a slash, and others don't: what different
	// readers take for different hosts is refused before it is read.
	if strings.ContainsFunc(raw, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '\\' || c == utf8.RuneError }) {
		return nil, &Refused{"url_characters", "The address must have no spaces, control characters or backslashes."}
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, &Refused{"url_malformed", "This is not a complete address like https://example.com/hook."}
	}
	if u.Scheme != "https" && u.Scheme != "http" {
		return nil, &Refused{"url_scheme", "The address must begin with https://."}
	}
	_, authority, _ := strings.Cut(raw, "://")
	authority, _, _ = strings.Cut(authority, "/")
	switch {
	case u.User != nil:
		return nil, &Refused{"url_credentials", "The address must hold no user name or password."}
	case strings.Contains(raw, "#"):
		return nil, &Refused{"url_fragment", "The address must have no part after a #."}
	case u.Opaque != "", u.Hostname() == "", strings.HasSuffix(u.Host, ":"):
		return nil, &Refused{"url_malformed", "This is not a complete address like https://example.com/hook."}
	case strings.Contains(authority, "%"):
		return nil, &Refused{"url_host", "The host must be written without % signs and zones."}
	}

	host, open, err := r.host(u.Host, u.Hostname())
	if err != nil {
		return nil, err
	}
	if u.Scheme == "http" && !open {
		return nil, &Refused{"url_https", "The address must begin with https://."}
	}
	port := u.Port()
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' || !open && closedPort(uint16(n)) {
			return nil, &Refused{"url_port", "The port must be 443 or one above 1023 that no other service is known by."}
		}
	}
	u.Host = host
	if port != "" && (u.Scheme != "https" || port != "443") && (u.Scheme != "http" || port != "80") {
		u.Host += ":" + port
	}
	if len(u.String()) > MaxURL {
		return nil, &Refused{"url_length", "The address must have 1 to " + strconv.Itoa(MaxURL) + " bytes."}
	}
	return u, nil
}

// host gives the host as it stands in a URL, and whether EGRESS_ALLOW names it.
// authority has the brackets that name has lost.
func (r Rules) host(authority, name string) (host string, open bool, err error) {
	if strings.HasPrefix(authority, "[") {
		addr, err := netip.ParseAddr(name)
		if err != nil {
			return "", false, &Refused{"url_host", "The host is not an IPv6 address."}
		}
		if addr.Is4In6() {
			return "", false, &Refused{"address_embedded", "The host is an IPv4 address in the clothes of IPv6."}
		}
		return "[" + addr.String() + "]", r.named(addr), r.Addr(addr)
	}
	name = strings.ToLower(name)
	if r.Opens(name) {
		return name, true, nil
	}
	// Full-width digits, ideographic dots and the like become what they look like.
	ascii, err := idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(true)).ToASCII(name)
	if err != nil {
		return "", false, &Refused{"url_host", "The host is not a valid name."}
	}
	if strings.HasSuffix(ascii, ".") {
		return "", false, &Refused{"url_host", "The host must not end in a dot."}
	}
	labels := strings.Split(ascii, ".")
	last := labels[len(labels)-1]
	if numeric := regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`); numeric.MatchString(last) {
		addr, err := netip.ParseAddr(ascii)
		if err != nil || ascii != name {
			return "", false, &Refused{"url_odd_address", "An IPv4 address must be written as four decimal numbers."}
		}
		return ascii, r.named(addr), r.Addr(addr)
	}
	if r.Opens(ascii) {
		return ascii, true, nil
	}
	if len(ascii) > 253 || slices.ContainsFunc(labels, func(l string) bool { return l == "" || len(l) > 63 }) {
		return "", false, &Refused{"url_host", "The host is not a valid name."}
	}
	if len(labels) == 1 || internal(last) || strings.HasSuffix(ascii, ".home.arpa") {
		return "", false, &Refused{"name_internal", "The host is not a name of the public internet."}
	}
	return ascii, false, nil
}

// internal: top-level names that are never delegated, or that resolvers answer
// for their own network.
func internal(top string) bool {
	return slices.Contains([]string{
		"alt", "arpa", "corp", "example", "home", "internal", "intranet", "invalid", "lan", "local",
		"localdomain", "localhost", "mail", "onion", "private", "svc", "test",
	}, top)
}

// closedPort: ports that carry other protocols. Below 1024 only 443 is for this;
// above it, those that browsers block (Fetch, "bad ports") and those of data
// stores and machine control, whose parsers a request must not reach.
func closedPort(port uint16) bool {
	if port < 1024 {
		return port != 443
	}
	return slices.Contains([]uint16{
		1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
		1433, 1521, 1883, 2181, 2375, 2376, 2379, 2380, 3306, 3389, 4222, 5432, 5672, 5900, 5984, 5985, 5986, 6379, 6380,
		7001, 8086, 9042, 9092, 9200, 9300, 10250, 10255, 11211, 26379, 27017, 27018, 28015, 50070,
	}, port)
}

// named: the address lies in a network that EGRESS_ALLOW names.
func (r Rules) named(addr netip.Addr) bool {
	return slices.ContainsFunc(r.networks, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// Addr admits an address that a connection is about to be made to. The error is
// a *Refused. An IPv4-mapped one counts as what the system connects to, its IPv4
// address.
//
// The networks are those of code.dny.dev/ssrf, made from IANA's registries of
// special-purpose addresses: of IPv6 only 2000::/3 is admitted, less what is
// special in it. The rest is what it lacks.
func (r Rules) Addr(addr netip.Addr) error {
	addr = addr.Unmap()
	if r.named(addr) {
		return nil
	}
	switch {
	case addr.IsLoopback(), addr.IsUnspecified():
		return &Refused{"address_loopback", "The address leads back to the server itself."}
	case addr.IsPrivate():
		return &Refused{"address_private", "The address is of a private network."}
	case addr.IsLinkLocalUnicast(), addr.IsLinkLocalMulticast(), addr.Zone() != "":
		return &Refused{"address_link_local", "The address is of the server's own link."}
	case addr.IsMulticast():
		return &Refused{"address_multicast", "The address is of a group, not of one host."}
	case isatap(addr):
		return &Refused{"address_embedded", "The address is of IPv4 in the clothes of IPv6."}
	// Azure's metadata and DNS, in the middle of its public addresses.
	case addr == netip.AddrFrom4([4]byte{168, 63, 129, 16}):
		return &Refused{"address_reserved", "The address is reserved, not of the public internet."}
	case !addr.IsValid(), ssrf.New(ssrf.WithAnyPort()).SafeAddr(addr) != nil:
		return &Refused{"address_reserved", "The address is reserved, not of the public internet."}
	}
	return nil
}

// isatap: RFC 5214's interface ids, which a tunnel takes for the IPv4 address at
// their end under each prefix.
func isatap(addr netip.Addr) bool {
	if !addr.Is6() {
		return false
	}
	b := addr.As16()
	return b[8]&^0x03 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}
