package mail

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Dir is a directory that takes every mail as a file: <task id>.eml is the
// message as a server would get it, <task id>.env its envelope in the words of
// SMTP. The second mail of a task replaces its first.
type Dir struct {
	// Path is made when missing.
	Path string
	// From is the sender's plain address.
	From string
}

// Send writes both files; the .eml appears last, and whole.
func (d Dir) Send(ctx context.Context, m Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	msg, err := compose(d.From, m)
	if err != nil {
		return err
	}
	var body bytes.Buffer
	if _, err := msg.WriteTo(&body); err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	from, err := msg.GetSender(false)
	if err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	to, err := msg.GetRecipients()
	if err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	envelope := fmt.Sprintf("MAIL FROM:%s\r\n", from)
	for _, address := range to {
		envelope += fmt.Sprintf("RCPT TO:%s\r\n", address)
	}
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	name := filepath.Join(d.Path, fileName(m.TaskID))
	if err := replace(name+".env", []byte(envelope)); err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	if err := replace(name+".eml", body.Bytes()); err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	return nil
}

// replace writes a file in one step.
func replace(name string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
