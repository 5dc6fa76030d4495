package mail

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	netmail "net/mail"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

const from = "page@sender.test"

const taskID = "0198b2a0-1111-7222-8333-444455556666:mail.test"

// captured is one mail as it was handed over.
type captured struct {
	from string
	to   []string
	raw  []byte
	user string
}

// server is an SMTP server that answers as it is told.
type server struct {
	address string
	roots   *x509.CertPool

	mu    sync.Mutex
	how   how
	mails []captured
}

type how struct {
	startTLS, implicitTLS, auth bool
	// refuse answers that command
	refuse map[string]*smtp.SMTPError
	// drop closes the connection once the server has the mail: "before" its reply to
	// that, or "after" it
	drop string
	// stall is how long the server thinks about a mail; once it has it
	stall time.Duration
}

func serve(t *testing.T, h how) *server {
	t.Helper()
	s := &server{how: h}
	srv := smtp.NewServer(s)
	srv.Domain = "mx.test"
	srv.AllowInsecureAuth = true
	srv.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.ReadTimeout, srv.WriteTimeout = 10*time.Second, 10*time.Second
	var config *tls.Config
	if h.startTLS || h.implicitTLS {
		config, s.roots = certificate(t)
	}
	if h.startTLS {
		srv.TLSConfig = config
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	if h.implicitTLS {
		listener = tls.NewListener(listener, config)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = listener.Close() // Serve may not have begun yet, and then Close doesn't know it
		_ = srv.Close()
		<-done
	})
	return s
}

func certificate(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, roots
}

// behaves says how the server behaves from now on.
func (s *server) behaves(h how) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.how = h
}

func (s *server) now() how {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.how
}

func (s *server) NewSession(c *smtp.Conn) (smtp.Session, error) {
	if e := s.now().refuse["EHLO"]; e != nil {
		return nil, e
	}
	return &session{s: s, conn: c.Conn()}, nil
}

func (s *server) captured() []captured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mails
}

type session struct {
	s    *server
	conn net.Conn
	captured
}

func (s *session) answer(command string) error {
	if e := s.s.now().refuse[command]; e != nil {
		return e
	}
	return nil
}

// Reset comes after the reply to a mail.
func (s *session) Reset() {
	if s.s.now().drop == "after" && s.raw != nil {
		_ = s.conn.Close()
	}
	s.captured = captured{user: s.user}
}

func (s *session) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if password != "p@ss:word" {
			return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "wrong password"}
		}
		s.user = user
		return nil
	}), nil
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	s.from = from
	return s.answer("MAIL")
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = append(s.to, to)
	return s.answer("RCPT")
}

func (s *session) Data(r io.Reader) (err error) {
	if s.raw, err = io.ReadAll(r); err != nil {
		return err
	}
	if err := s.answer("DATA"); err != nil {
		return err
	}
	s.s.mu.Lock()
	s.s.mails = append(s.s.mails, s.captured)
	s.s.mu.Unlock()
	if s.s.now().drop == "before" {
		_ = s.conn.Close()
	}
	<-time.After(s.s.now().stall)
	return nil
}

func (s *session) Logout() error { return nil }

func sender(t *testing.T, s *server, address string) *SMTP {
	t.Helper()
	u, err := url.Parse(strings.ReplaceAll(address, "HOST", s.address))
	if err != nil {
		t.Fatal(err)
	}
	out, err := NewSMTP(u, from)
	if err != nil {
		t.Fatal(err)
	}
	out.tls.RootCAs = s.roots
	return out
}

func message() Message {
	return Message{TaskID: taskID, To: Address{"Ada", "ada@example.test"}, Subject: "Hello", Text: "Line one\nLine two\n"}
}

func TestSMTP(t *testing.T) {
	for name, c := range map[string]struct {
		how
		url, user string
	}{
		"plain":            {how{}, "smtp://HOST", ""},
		"STARTTLS":         {how{startTLS: true}, "smtp://HOST", ""},
		"with a password":  {how{auth: true}, "smtp://ada:p%40ss%3Aword@HOST", "ada"},
		"STARTTLS, passwd": {how{startTLS: true, auth: true}, "smtp://ada:p%40ss%3Aword@HOST", "ada"},
		"TLS":              {how{implicitTLS: true}, "smtps://HOST", ""},
		"TLS, password":    {how{implicitTLS: true, auth: true}, "smtps://ada:p%40ss%3Aword@HOST", "ada"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.how)
			if err := sender(t, s, c.url).Send(t.Context(), message()); err != nil {
				t.Fatal(err)
			}
			mails := s.captured()
			if len(mails) != 1 || mails[0].from != from || len(mails[0].to) != 1 || mails[0].to[0] != "ada@example.test" || mails[0].user != c.user {
				t.Fatalf("%+v", mails)
			}
			m := inspect(t, mails[0].raw)
			if m.text != "Line one\r\nLine two\r\n" || m.header.Get("Subject") != "Hello" {
				t.Errorf("%q, %v", m.text, m.header)
			}
			if id := m.header.Get("Message-ID"); id != "<0198b2a0-1111-7222-8333-444455556666.mail.test@sender.test>" {
				t.Errorf("Message-ID %s", id)
			}
		})
	}
}

func TestClassification(t *testing.T) {
	refusal := func(code int) *smtp.SMTPError {
		return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 1, 1}, Message: "no"}
	}
	for name, c := range map[string]struct {
		refuse    map[string]*smtp.SMTPError
		url       string
		permanent bool
	}{
		"unknown recipient":  {map[string]*smtp.SMTPError{"RCPT": refusal(550)}, "smtp://HOST", true},
		"greylisted":         {map[string]*smtp.SMTPError{"RCPT": refusal(451)}, "smtp://HOST", false},
		"sender refused":     {map[string]*smtp.SMTPError{"MAIL": refusal(553)}, "smtp://HOST", true},
		"content refused":    {map[string]*smtp.SMTPError{"DATA": refusal(554)}, "smtp://HOST", true},
		"out of disk":        {map[string]*smtp.SMTPError{"DATA": refusal(452)}, "smtp://HOST", false},
		"login required":     {map[string]*smtp.SMTPError{"MAIL": refusal(530)}, "smtp://HOST", false},
		"SES, unverified":    {map[string]*smtp.SMTPError{"DATA": {Code: 554, Message: "Message rejected: Email address is not verified. The following identities failed the check in region EU-WEST-1: page@sender.test"}}, "smtp://HOST", false},
		"not welcome":        {map[string]*smtp.SMTPError{"EHLO": refusal(554)}, "smtp://HOST", false},
		"wrong password":     {nil, "smtp://ada:wrong@HOST", false},
		"TLS is not offered": {nil, "smtps://HOST", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, how{refuse: c.refuse})
			err := sender(t, s, c.url).Send(t.Context(), message())
			if err == nil || Permanent(err) != c.permanent {
				t.Errorf("permanent %t, want %t: %v", Permanent(err), c.permanent, err)
			}
			if err != nil && strings.Contains(err.Error(), "wrong@") {
				t.Errorf("shows the password: %v", err)
			}
			if len(s.captured()) != 0 {
				t.Error("a refused mail was captured")
			}
		})
	}
	for _, to := range []string{"", "nobody", "x@evil.test> <y", "you@a.test>, <evil@b.test", "Eve <x@b.test>", "x@b.test\r\nRCPT TO:<y@b.test>"} {
		m := message()
		m.To.Email = to
		s := serve(t, how{})
		if err := sender(t, s, "smtp://HOST").Send(t.Context(), m); !Permanent(err) {
			t.Errorf("to %q: %v", to, err)
		}
		m.To, m.ReplyTo = message().To, Address{Email: to}
		if to != "" {
			if err := sender(t, s, "smtp://HOST").Send(t.Context(), m); !Permanent(err) {
				t.Errorf("reply to %q: %v", to, err)
			}
		}
		if len(s.captured()) != 0 {
			t.Errorf("to %q was sent", to)
		}
	}
}

// A password never leaves for another machine without TLS.
func TestPasswordNeedsTLS(t *testing.T) {
	s := serve(t, how{auth: true})
	u, err := url.Parse("smtp://ada:p%40ss%3Aword@mail.test")
	if err != nil {
		t.Fatal(err)
	}
	out, err := NewSMTP(u, from)
	if err != nil || out.port != 587 {
		t.Fatal(out, err)
	}
	// the same options against a server that offers no STARTTLS
	local := sender(t, s, "smtp://HOST")
	local.options = append(local.options, out.options[2:]...)
	if err := local.Send(t.Context(), message()); err == nil || !strings.Contains(err.Error(), "STARTTLS") || len(s.captured()) != 0 {
		t.Errorf("%v, %d mails", err, len(s.captured()))
	}
}

// A server that takes the connection and then says nothing holds nobody longer
// than the context.
func TestSilentServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, scheme := range []string{"smtp", "smtps"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		began := time.Now()
		err = sender(t, &server{address: listener.Addr().String()}, scheme+"://HOST").Send(ctx, message())
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || Permanent(err) || time.Since(began) > 5*time.Second {
			t.Errorf("%s: %v after %v", scheme, err, time.Since(began))
		}
	}
}

type mailFacts struct {
	header netmail.Header
	text   string
	html   string
	// calendar is the iTIP part, attachment invite.ics; nil without them
	calendar, attachment []byte
	method               string
}

// inspect fails on anything that a mail server or reader may choke on.
func inspect(t *testing.T, raw []byte) mailFacts {
	t.Helper()
	if bytes.Contains(bytes.ReplaceAll(raw, []byte("\r\n"), nil), []byte("\n")) || bytes.Contains(bytes.ReplaceAll(raw, []byte("\r\n"), nil), []byte("\r")) {
		t.Error("bare CR or LF")
	}
	for l := range bytes.SplitSeq(raw, []byte("\r\n")) {
		if len(l) > 998 {
			t.Errorf("a line of %d bytes", len(l))
		}
	}
	head, _, _ := strings.Cut(string(raw), "\r\n\r\n")
	for _, c := range []byte(head) {
		if c >= 0x80 {
			t.Error("8-bit header")
			break
		}
	}
	for _, w := range regexp.MustCompile(`=\?[^?\s]+\?[BbQq]\?[^?]*\?=`).FindAllString(head, -1) {
		if len(w) > 75 {
			t.Errorf("an encoded-word of %d", len(w))
		}
	}
	parsed, err := netmail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("%v in\n%s", err, raw)
	}
	for _, h := range []string{"From", "To", "Subject", "Date", "Message-Id", "Auto-Submitted", "Mime-Version", "Content-Type"} {
		if n := len(parsed.Header[h]); n != 1 {
			t.Errorf("%s appears %d times", h, n)
		}
	}
	if parsed.Header.Get("Bcc") != "" || parsed.Header.Get("Cc") != "" {
		t.Errorf("%v", parsed.Header)
	}
	facts := mailFacts{header: parsed.Header}
	inspectPart(t, textproto.MIMEHeader(parsed.Header), parsed.Body, &facts)
	return facts
}

// inspectPart takes a part apart, and every part in it.
func inspectPart(t *testing.T, header textproto.MIMEHeader, body io.Reader, facts *mailFacts) {
	t.Helper()
	kind, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		t.Errorf("%q: %v", header.Get("Content-Type"), err)
	}
	if strings.HasPrefix(kind, "multipart/") {
		var kinds []string
		for r := multipart.NewReader(body, params["boundary"]); ; {
			p, err := r.NextRawPart()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			k, _, _ := strings.Cut(p.Header.Get("Content-Type"), ";")
			kinds = append(kinds, k)
			inspectPart(t, p.Header, p, facts)
		}
		switch got := kind + " " + strings.Join(kinds, " "); got {
		case "multipart/alternative text/plain text/html", "multipart/alternative text/plain text/html text/calendar", "multipart/mixed multipart/alternative application/ics":
		default:
			t.Error(got)
		}
		return
	}
	switch header.Get("Content-Transfer-Encoding") {
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	default:
		t.Errorf("encoding %q", header.Get("Content-Transfer-Encoding"))
	}
	content, err := io.ReadAll(body)
	if err != nil {
		t.Error(err)
	}
	if kind != "application/ics" && !strings.EqualFold(params["charset"], "utf-8") {
		t.Errorf("%v", header)
	}
	switch kind {
	case "text/plain":
		facts.text = string(content)
	case "text/html":
		facts.html = string(content)
	case "text/calendar":
		facts.calendar, facts.method = content, params["method"]
	case "application/ics":
		if disposition, p, err := mime.ParseMediaType(header.Get("Content-Disposition")); err != nil || disposition != "attachment" || p["filename"] != "invite.ics" || params["name"] != "invite.ics" {
			t.Errorf("%v", header)
		}
		facts.attachment = content
	}
}

// TestAnyText: whatever people write, it arrives as it was written and changes
// nothing else.
func TestAnyText(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for subject, want := range map[string]string{
		"山田 太郎 – 東京オフィス 応募について": "",
		"plain": "",
		"":      "",
		"two  spaces   stay   between all of these words so that folding would have to lose one of them": "",
		"é two  spaces":                 "",
		"=?utf-8?q?not_encoded?= by us": "",
		"a\r\nBcc: evil@b.test":         "a  Bcc: evil@b.test",
		"a\nb\tc\x00d\u2028e":           "a b c d e",
		"bad \xff byte":                 "bad \uFFFD byte",
		strings.Repeat("長", 300):        strings.Repeat("長", 249) + "…",
		strings.Repeat("w", 250):        "",
		"👩‍👩‍👧 " + strings.Repeat("👩‍👩‍👧", 20): "",
	} {
		if want == "" {
			want = subject
		}
		m := message()
		m.Subject = subject
		facts := send(t, m)
		got, err := new(mime.WordDecoder).DecodeHeader(facts.header.Get("Subject"))
		if err != nil || got != want {
			t.Errorf("subject %q reads %q, %v", want, got, err)
		}
	}
	for name, want := range map[string]string{
		`Eve, "F" <x@b.test>`:             "",
		"Eve\r\nBcc: evil@b.test":         "Eve  Bcc: evil@b.test",
		"山田 太郎":                           "",
		"":                                "",
		strings.Repeat("名前", 80):          strings.Repeat("名前", 49) + "名…",
		strings.Repeat("n", 100):          "",
		"=?utf-8?q?=3Cevil=40b.test=3E?=": "",
	} {
		if want == "" {
			want = name
		}
		m := message()
		m.To.Name, m.ReplyTo = name, Address{name, "reply@b.test"}
		facts := send(t, m)
		for header, address := range map[string]string{"To": "ada@example.test", "Reply-To": "reply@b.test"} {
			list, err := facts.header.AddressList(header)
			if err != nil || len(list) != 1 || list[0].Address != address || list[0].Name != want && !strings.HasPrefix(name, "=?") {
				t.Errorf("%s of %q reads %v, %v", header, name, list, err)
			}
		}
	}
	for text, want := range map[string]string{
		long:                               "",
		long + "\n" + long:                 long + "\r\n" + long,
		"<a href=https://b.test>Reset</a>": "",
		".\n.\n..x\n":                      ".\r\n.\r\n..x\r\n",
		"From here\n \n\ttab, space \n日本語 = =3D": "From here\r\n \r\n\ttab, space \r\n日本語 = =3D",
		"":              "",
		"bad \xff byte": "bad \uFFFD byte",
	} {
		if want == "" {
			want = text
		}
		m := message()
		m.Text = text
		if got := send(t, m).text; strings.TrimSuffix(got, "\r\n") != strings.TrimSuffix(want, "\r\n") {
			t.Errorf("text %.60q reads %.60q", want, got)
		}
	}
}

// send goes through an SMTP server, the directory and SES, which must agree.
func send(t *testing.T, m Message) mailFacts {
	t.Helper()
	s := serve(t, how{})
	if err := sender(t, s, "smtp://HOST").Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	mails := s.captured()
	if len(mails) != 1 || len(mails[0].to) != 1 || mails[0].to[0] != m.To.Email {
		t.Fatalf("%d mails to %v", len(mails), mails)
	}
	facts := inspect(t, mails[0].raw)
	dir := Dir{Path: t.TempDir(), From: from}
	if err := dir.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(dir.Path, fileName(m.TaskID)+".eml"))
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := os.ReadFile(filepath.Join(dir.Path, fileName(m.TaskID)+".env"))
	if want := "MAIL FROM:<" + from + ">\r\nRCPT TO:<" + m.To.Email + ">\r\n"; err != nil || string(envelope) != want {
		t.Errorf("%q, %v", envelope, err)
	}
	amazon := serveSES(t)
	if err := amazon.sender(t).Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	calls := amazon.captured()
	if len(calls) != 1 || calls[0].from != from || len(calls[0].to) != 1 || calls[0].to[0] != m.To.Email {
		t.Fatalf("%d calls to SES: %+v", len(calls), calls)
	}
	bySES := inspect(t, calls[0].raw)
	if r := bySES.header.Get("References"); r != bySES.header.Get("Message-ID") {
		t.Errorf("References %s", r)
	}
	delete(bySES.header, "References")
	for where, same := range map[string]mailFacts{"the directory": inspect(t, file), "SES": bySES} {
		same.header["Date"], same.header["Content-Type"] = facts.header["Date"], facts.header["Content-Type"] // with its boundary
		if !reflect.DeepEqual(same, facts) {
			t.Errorf("%s has another mail: %+v\nand not %+v", where, same, facts)
		}
	}
	return facts
}

func TestDir(t *testing.T) {
	dir := Dir{Path: filepath.Join(t.TempDir(), "a", "mail"), From: from}
	m := message()
	for _, m.Text = range []string{"first", "second"} {
		if err := dir.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir.Path)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v: a repeated task replaces its mail", entries, err)
	}
	envelope, err := os.ReadFile(filepath.Join(dir.Path, fileName(taskID)+".env"))
	if err != nil || string(envelope) != "MAIL FROM:<page@sender.test>\r\nRCPT TO:<ada@example.test>\r\n" {
		t.Errorf("%q, %v", envelope, err)
	}
	content, err := os.ReadFile(filepath.Join(dir.Path, fileName(taskID)+".eml"))
	if err != nil || inspect(t, content).text != "second" {
		t.Errorf("%s, %v", content, err)
	}
	for _, id := range []string{"../../etc/x:mail.test", "a/b", "a\x00b", "..", "日本"} {
		if name := fileName(id); strings.ContainsAny(name, "/\x00") || strings.HasPrefix(name, ".") {
			t.Errorf("%q becomes %q", id, name)
		}
	}
	blocked := Dir{Path: filepath.Join(dir.Path, fileName(taskID)+".eml"), From: from}
	if err := blocked.Send(t.Context(), m); err == nil || Permanent(err) {
		t.Errorf("a directory that can't be made: %v", err)
	}
}
