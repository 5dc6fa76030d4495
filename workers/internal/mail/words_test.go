package mail

import (
	"bytes"
	"mime"
	netmail "net/mail"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"standmeet/shared/email"
)

// read is what a reader of an HTML mail sees, and where it leads; it fails on
// markup that we don't write.
func read(t *testing.T, page string) (text string, links []string) {
	t.Helper()
	var b strings.Builder
	paragraphs := 0
	for z := html.NewTokenizer(strings.NewReader(page)); ; {
		kind := z.Next()
		token := z.Token()
		switch kind {
		case html.ErrorToken:
			return b.String(), links
		case html.TextToken:
			if paragraphs > 0 && strings.TrimRight(token.Data, "\r\n") != "" {
				b.WriteString(token.Data)
			}
		case html.StartTagToken:
			switch token.Data {
			case "p":
				if paragraphs++; paragraphs > 1 {
					b.WriteString("\n\n")
				}
			case "br":
				b.WriteString("\n")
			case "a":
				if len(token.Attr) != 1 || token.Attr[0].Key != "href" {
					t.Errorf("%v", token)
				}
				links = append(links, token.Attr[0].Val)
			case "html", "head", "meta", "body":
			default:
				t.Errorf("markup %s", token)
			}
			if token.Data != "a" && slices.ContainsFunc(token.Attr, func(a html.Attribute) bool { return a.Key != "style" && a.Key != "charset" }) {
				t.Errorf("markup %s", token)
			}
		case html.EndTagToken, html.DoctypeToken:
		default:
			t.Errorf("markup %s", token)
		}
	}
}

// words are what has to be read in either version of a text.
func words(s string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(s, "\r\n", "\n")), " ")
}

func TestLinks(t *testing.T) {
	m := message()
	m.Links = []string{"https://page.test/@ada/code", "https://page.test/@ada/code?code=A&x=1", "javascript:alert(1)"}
	m.Text = "Open https://page.test/@ada/code?code=A&x=1\nor https://page.test/@ada/code.\n\nThey wrote:\n<a href=https://b.test>Reset</a> https://b.test javascript:alert(1) \" ' &amp;"
	facts := send(t, m)
	text, links := read(t, facts.html)
	if text != m.Text || words(facts.text) != words(m.Text) {
		t.Errorf("it reads\n%s\nand\n%s", text, facts.text)
	}
	if want := []string{m.Links[1], m.Links[0]}; !slices.Equal(links, want) {
		t.Errorf("it leads to %q", links)
	}
}

func TestFromName(t *testing.T) {
	for _, name := range []string{"山田 太郎", `Eve, "F" <x@b.test>`, "Ada's page", ""} {
		m := message()
		m.FromName = name
		list, err := send(t, m).header.AddressList("From")
		if err != nil || len(list) != 1 || list[0].Address != from || list[0].Name != name {
			t.Errorf("%q: %v, %v", name, list, err)
		}
	}
}

const ics = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//x//EN\r\nMETHOD:REQUEST\r\nBEGIN:VEVENT\r\nUID:1@page.test\r\nDTSTAMP:20261130T120000Z\r\nDTSTART:20261201T120000Z\r\nSUMMARY:会議 – \r\n \r\n  three\\, spaces\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"

func TestCalendar(t *testing.T) {
	for _, method := range []string{"REQUEST", "CANCEL"} {
		m := message()
		m.Calendar = &Calendar{Method: method, ICS: []byte(strings.Replace(ics, "REQUEST", method, 1))}
		facts := send(t, m)
		if facts.method != method || !bytes.Equal(facts.calendar, m.Calendar.ICS) || !bytes.Equal(facts.attachment, m.Calendar.ICS) {
			t.Errorf("%s: %q, %q, %q", method, facts.method, facts.calendar, facts.attachment)
		}
		if words(facts.text) != "Line one Line two" {
			t.Errorf("%q", facts.text)
		}
	}
	for name, c := range map[string]Calendar{
		"another method": {"CANCEL", []byte(ics)},
		"no method":      {"REQUEST", []byte(strings.Replace(ics, "METHOD:REQUEST\r\n", "", 1))},
		"in a text only": {"REQUEST", []byte(strings.Replace(ics, "METHOD:REQUEST", "X-A:METHOD:REQUEST", 1))},
		"a parameter":    {"REQUEST; x=y", []byte(ics)},
		"nothing":        {},
	} {
		m := message()
		m.Calendar = &c
		s := serve(t, how{})
		if err := sender(t, s, "smtp://HOST").Send(t.Context(), m); !Permanent(err) || len(s.captured()) != 0 {
			t.Errorf("%s: %v, %d mails", name, err, len(s.captured()))
		}
	}
}

// composed is a mail as it leaves, and whom it goes to.
func composed(t *testing.T, m Message) (facts mailFacts, to []string) {
	t.Helper()
	msg, err := compose(from, m)
	if err != nil {
		t.Fatal(err)
	}
	var raw bytes.Buffer
	if _, err := msg.WriteTo(&raw); err != nil {
		t.Fatal(err)
	}
	if to, err = msg.GetRecipients(); err != nil {
		t.Fatal(err)
	}
	return inspect(t, raw.Bytes()), to
}

// hostile are words that some program has taken for more than words.
func hostile() []string {
	return []string{
		"", " ", "山田 太郎 – 東京オフィス 応募について", `Eve, "F" <x@b.test>`, "Eve\r\nBcc: evil@b.test", "a\nb\rc\x00\x1bd\u2028e\u0085f", "bad \xff\xfe byte",
		"=?utf-8?q?=3Cevil=40b.test=3E?=", "=?utf-8?b?" + strings.Repeat("A", 90) + "?=", strings.Repeat("長", 300), strings.Repeat("x", 5000), strings.Repeat("é ", 200),
		"👩‍👩‍👧", "a\u0301\u202Eb", "<a href=https://b.test>Reset</a>", "</p></body><script>x</script>", "<!--", "&lt;b&gt;", ".", ".\r\n.\r\nMAIL FROM:<x@b.test>", "From here", "--boundary",
		"(comment)", "a;b,c:d@e", "\\", `"`, "\"\r\n\"", "%0aBcc: x@b.test", "a  b   c", "\t", "[x]", "{{.}}", "=3D=\r\n",
	}
}

func FuzzHeaders(f *testing.F) {
	for _, s := range hostile() {
		f.Add(s, "Hello")
		f.Add("Ada", s)
	}
	f.Fuzz(func(t *testing.T, name, subject string) {
		m := message()
		m.To.Name, m.FromName, m.Subject = name, name, subject
		m.ReplyTo = Address{name, "reply@b.test"}
		facts, to := composed(t, m)
		if len(to) != 1 || to[0] != "<ada@example.test>" {
			t.Errorf("to %q", to)
		}
		got, err := new(mime.WordDecoder).DecodeHeader(facts.header.Get("Subject"))
		if err != nil || got != line(subject, maxSubject) {
			t.Errorf("subject %q reads %q, %v", subject, got, err)
		}
		for header, address := range map[string]string{"To": "ada@example.test", "Reply-To": "reply@b.test", "From": from} {
			list, err := facts.header.AddressList(header)
			if err != nil || len(list) != 1 || list[0].Address != address || list[0].Name != line(name, maxName) && !strings.Contains(name, "=?") {
				t.Errorf("%s of %q reads %v, %v", header, name, list, err)
			}
		}
		if len(facts.header) != len(composedHeaders()) {
			t.Errorf("%v", facts.header)
		}
	})
}

// composedHeaders are those of a mail with a Reply-To.
func composedHeaders() []string {
	return []string{"From", "To", "Reply-To", "Subject", "Date", "Message-Id", "Auto-Submitted", "Mime-Version", "Content-Type"}
}

func FuzzAddress(f *testing.F) {
	for _, s := range hostile() {
		f.Add(s)
		f.Add(s + "@b.test")
		f.Add("x@" + s)
	}
	for _, s := range []string{"x@evil.test> <y", "you@a.test>, <evil@b.test", "Eve <x@b.test>", "x@b.test\r\nRCPT TO:<y@b.test>", "Ada@Example.TEST", "x@münchen.test", `"a b"@c.test`, "x@[127.0.0.1]", "a@b@c", "x@b.test SIZE=1", "x@b.test>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		for _, m := range []Message{{TaskID: taskID, To: Address{Email: address}}, {TaskID: taskID, To: Address{"Ada", "ada@example.test"}, ReplyTo: Address{"Eve", address}}} {
			parsed, wrong := email.Parse(address)
			_, err := compose(from, m)
			if m.ReplyTo == (Address{Name: "Eve"}) || wrong != nil {
				if !Permanent(err) {
					t.Fatalf("%q: %v", address, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			facts, to := composed(t, m)
			header, name := "To", m.To.Name
			if m.ReplyTo.Email != "" {
				header, name = "Reply-To", "Eve"
			} else if len(to) != 1 || to[0] != "<"+parsed+">" {
				t.Errorf("%q goes to %q", address, to)
			}
			list, err := facts.header.AddressList(header)
			if err != nil || len(list) != 1 || *list[0] != (netmail.Address{Name: name, Address: parsed}) {
				t.Errorf("%s of %q: %v, %v", header, address, list, err)
			}
		}
	})
}

func FuzzText(f *testing.F) {
	for _, s := range hostile() {
		f.Add(s, "https://page.test/")
		f.Add("They wrote:\n"+s+"\n\nhttps://page.test/?a=1&b=2", "https://page.test/?a=1&b=2")
		f.Add("x", s)
	}
	f.Fuzz(func(t *testing.T, body, link string) {
		m := message()
		m.Text, m.Links = body, []string{link}
		facts, _ := composed(t, m)
		want := plain(body)
		if got := strings.ReplaceAll(facts.text, "\r\n", "\n"); strings.TrimSuffix(got, "\n") != strings.TrimSuffix(want, "\n") {
			t.Errorf("%q reads %q", want, got)
		}
		text, links := read(t, facts.html)
		if words(text) != words(want) {
			t.Errorf("%q reads %q in HTML", words(want), words(text))
		}
		for _, l := range links {
			if l != plain(link) || !strings.HasPrefix(strings.ToLower(l), "http") {
				t.Errorf("leads to %q, not %q", l, link)
			}
		}
	})
}
