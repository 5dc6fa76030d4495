package functions

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"standmeet/functions/access"
	"standmeet/functions/account"
	"standmeet/functions/corpus"
	"standmeet/functions/guest"
	"standmeet/functions/mcp"
	"standmeet/functions/microsites"
	"standmeet/shared/auth"
	"standmeet/shared/blob"
	"standmeet/shared/egress"
	"standmeet/shared/limit"
	"standmeet/shared/op"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
	"standmeet/shared/task"
	"standmeet/shared/telemetry"
	"standmeet/shared/waiter"
)

// Version of the public interface.
const Version = "0.2.0"

// Deps is what the functions of a process share. The waiter has
// task.FinalSource, outbox.FanoutSource and microsite.SettledSource.
type Deps struct {
	DB       *pg.DB
	Waiter   *waiter.Waiter
	Receipts *task.Receipts
	Auth     *auth.Store
	Logger   *slog.Logger
	// Keys derive access codes and the tokens of bookings; without them nothing is
	// approved or booked.
	Keys secret.Keys
	// PublicURL is where people reach the gateway, without a final slash.
	PublicURL string
	// Mail: there is a mail supplier, as far as this process can tell.
	Mail bool
	// Blobs keeps the files of vaults and sites.
	Blobs blob.Store
	// Egress says which addresses webhooks and feeds may have.
	Egress egress.Rules
	// Telemetry records each call; nil doesn't.
	Telemetry *telemetry.Telemetry
	// MaxWait is as in op.Server.
	MaxWait time.Duration
	// HTTPS: people reach the pages by HTTPS alone.
	HTTPS bool
	// Frozen: the process may be frozen between two requests, so that nothing may
	// be left under way when an answer has left.
	Frozen bool
}

// The endpoints that serve no single operation.
const (
	MCP     = "mcp"     // POST /mcp
	OpenAPI = "openapi" // GET /openapi.json
	Pages   = "sign_in" // GET /, /sign-in, POST /sign-in, /sign-in/mail, /sign-out
	Guest   = "guest"   // /@{handle} and what is below it; else as catalog, since no route of a gateway can say @
	Site    = "site"    // /s/{handle}/{slug} and /preview/{build_id}, and what is below them
	Any     = "catalog" // every operation in one function, and a problem for every other route
)

// Functions are the endpoints of one process.
type Functions struct {
	Catalog op.Catalog
	deps    Deps
	server  *op.Server
}

// publicLimit is what one address may ask of public operations in all.
func publicLimit() limit.Rule { return limit.Rule{Name: "public", Most: 1200, Per: time.Minute} }

// New declares every operation.
func New(d Deps) *Functions {
	s := &op.Server{Authenticate: d.Auth.Authenticate, Logger: d.Logger, Telemetry: d.Telemetry, MaxWait: d.MaxWait}
	s.Limit = func(ctx context.Context, address string) error {
		return publicLimit().Take(ctx, d.DB, limit.Address(address))
	}
	if d.Frozen {
		s.Flush = func(ctx context.Context) {
			d.DB.Flush(ctx)
			d.Auth.Flush(ctx)
		}
	}
	return &Functions{Catalog: Catalog(d), deps: d, server: s}
}

// Endpoint is the function of that name, which is what _HANDLER says: an
// operation's, or one of the names above.
func (f *Functions) Endpoint(name string) (http.Handler, error) {
	switch name {
	case MCP:
		return mcp.New(f.Catalog, mcp.Options{Server: f.server, Version: Version, Answers: f.answers()}), nil
	case OpenAPI:
		doc, err := Document(f.Catalog)
		return document(doc), err
	case Pages:
		return account.Pages(f.deps.account(), f.server), nil
	case Guest:
		return guest.Pages(f.Catalog, f.server, f.deps.DB), nil
	case Site:
		return microsites.Pages(f.deps.microsites(), f.server), nil
	case Any:
		return f.Catalog.Handler(f.server), nil
	}
	o := f.Catalog.ByName(name)
	if o == nil {
		return nil, fmt.Errorf("functions: there is no function %q", name)
	}
	return op.NewCatalog(o).Handler(f.server), nil
}

// answers says, by subscriber, what answers for a receipt on the MCP face.
func (f *Functions) answers() map[string]*op.Operation {
	return map[string]*op.Operation{
		task.ApprovalMail: access.MailAnswer(f.deps.access()),
		task.CorpusIndex:  corpus.Answer(f.deps.corpus()),
		task.MailTest:     account.TestMailAnswer(f.deps.account()),
	}
}

// Document is the catalog as OpenAPI.
func Document(cat op.Catalog) ([]byte, error) {
	doc, err := cat.OpenAPI(op.Info{
		Title: "StandMeet", Version: Version,
		Description: "Every answer states only what is committed. Work that an answer leaves in flight has a receipt, a task id, that GET /v1/tasks/{id} follows.",
	})
	if err != nil {
		return nil, fmt.Errorf("functions: OpenAPI: %w", err)
	}
	return doc, nil
}

func document(doc []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "public, max-age=300")
		_, _ = w.Write(doc) // the client is gone if this fails
	})
}
