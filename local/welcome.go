package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"standmeet/functions"
	"standmeet/shared/auth"
	"standmeet/shared/config"
	"standmeet/shared/fault"
	"standmeet/shared/pg"
)

// RunFile is run.json, which is there for as long as the process answers.
type RunFile struct {
	BaseURL     string `json:"base_url"`
	MCPURL      string `json:"mcp_url"`
	Owner       Owner  `json:"owner"`
	DatabaseURL string `json:"database_url"`
	MailDir     string `json:"mail_dir"`
	BlobDir     string `json:"blob_dir"`
}

// Owner is how to act as the owner.
type Owner struct {
	Handle    string `json:"handle"`
	Email     string `json:"email"`
	Token     string `json:"token"`
	SignInURL string `json:"sign_in_url"`
}

// write puts the file at path in one step, readable by its owner alone. remove
// takes it away again unless another process has put its own there.
func (f RunFile) write(path string) (remove func(), err error) {
	content, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return nil, err
	}
	content = append(content, '\n')
	if err := replace(path, content); err != nil {
		return nil, err
	}
	return func() {
		if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, content) {
			_ = os.Remove(path)
		}
	}, nil
}

// replace writes a file, mode 0600, in one step.
func replace(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// welcome makes sure of the owner and of an API token, which it keeps in
// tokenFile so that it survives restarts, and makes a fresh sign-in link, whose
// secret is in SignInURL.
func welcome(ctx context.Context, db *pg.DB, s *auth.Store, p auth.Profile, tokenFile string) (o Owner, err error) {
	kept, err := os.ReadFile(tokenFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return o, err
	}
	o.Token = strings.TrimSpace(string(kept))
	caller, err := s.Authenticate(ctx, auth.Credentials{Bearer: o.Token})
	if f := fault.From(err); f != nil && f.Kind != fault.Unauthorized {
		return o, err
	}
	err = db.InTx(ctx, func(tx *pg.Tx) (err error) {
		if p, err = auth.EnsureOwner(ctx, tx, p); err != nil {
			return err
		}
		if caller.OwnerID != p.ID {
			if _, o.Token, err = auth.CreateToken(ctx, tx, p.ID, auth.Token{Name: "make run", Scopes: []string{auth.AllScopes}}); err != nil {
				return err
			}
		}
		o.SignInURL, err = auth.CreateSignInLink(ctx, tx, p.ID, linkLife)
		return err
	})
	if err != nil {
		return o, err
	}
	o.Handle, o.Email = p.Handle, p.Email
	return o, replace(tokenFile, []byte(o.Token+"\n"))
}

func (f RunFile) print(w io.Writer, parts config.Parts, took time.Duration) {
	fmt.Fprintf(w, "StandMeet (%s) is ready after %.1f s. Ctrl-C stops it.\n", parts, took.Seconds())
	if !parts.Gateway {
		return
	}
	fmt.Fprintf(w, `
  Page       %s/
  Sign in    %s
  API token  %s
  MCP        %s
  API        %s/openapi.json

  Create a note:

curl -sS %s/v1/corpus -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' -d '{"genre":"raw","title":"Hello","body":"My first note."}'

`, f.BaseURL, f.Owner.SignInURL, f.Owner.Token, f.MCPURL, f.BaseURL, f.BaseURL, f.Owner.Token)
}

// printOps lists every operation: name, route, tool, function.
func printOps(w io.Writer) error {
	cat := functions.Catalog(functions.Deps{})
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "OPERATION\tROUTE\tTOOL\tFUNCTION")
	for _, f := range cat.Manifest() {
		tool := "-"
		if f.Tool {
			tool = cat.ByName(f.Operation).ToolName(false)
		}
		fmt.Fprintf(table, "%s\t%s %s\t%s\t%s\n", f.Operation, f.Method, cat.ByName(f.Operation).Spec().Path, tool, f.Name)
	}
	return table.Flush()
}
