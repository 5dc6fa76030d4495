// Package microsites holds the operations on an owner's small sites, and serves
// them. A build is made of a site's files in the background; what visitors are
// served changes by publish, rollback and unpublish alone.
package microsites

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/blob"
	"standmeet/shared/fault"
	"standmeet/shared/microsite"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// Deps is what these operations need. The waiter has microsite.SettledSource.
type Deps struct {
	DB       *pg.DB
	Waiter   *waiter.Waiter
	Receipts *task.Receipts
	Blobs    blob.Store
	// PublicURL is where people reach the gateway, without a final slash.
	PublicURL string
}

const (
	// longWait is how long a caller may wait for a build in one request; an API
	// Gateway ends a request after 30 s.
	longWait = 20 * time.Second
	// maxBody is what an API Gateway takes of a request.
	maxBody = 10 << 20
)

type named struct {
	Slug string `json:"slug" path:"slug" maxLength:"63" jsonschema:"the site's slug"`
}

// Answer is a site.
type Answer struct {
	Site microsite.Site `json:"site"`
}

// Switched answers what decides over what visitors are served.
type Switched struct {
	Site    microsite.Site `json:"site"`
	Changed bool           `json:"changed" jsonschema:"false: it was so before"`
}

// place fills in where a site is served.
func (d Deps) place(c auth.Caller, s microsite.Site) microsite.Site {
	s.URL = fmt.Sprintf("%s/s/%s/%s/", d.PublicURL, c.Handle, s.Slug)
	return s
}

func (d Deps) answer(_ context.Context, c auth.Caller, s microsite.Site) (Answer, error) {
	return Answer{d.place(c, s)}, nil
}

func (d Deps) switched(_ context.Context, c auth.Caller, s Switched) (Switched, error) {
	s.Site = d.place(c, s.Site)
	return s, nil
}

// shown fills in where a build can be looked at.
func (d Deps) shown(b microsite.Build) microsite.Build {
	if b.Status == microsite.Built {
		b.PreviewURL = fmt.Sprintf("%s/preview/%s/", d.PublicURL, b.BuildID)
	}
	return b
}

func taskOf(build uuid.UUID) task.ID { return task.ID{Event: build, Subscriber: task.MicrositeBuild} }

type given struct {
	Path     string `json:"path" minLength:"1" maxLength:"400" jsonschema:"e.g. \"index.tsx\" or \"img/logo.svg\""`
	Content  string `json:"content" jsonschema:"the file's text, or its bytes in base64"`
	Encoding string `json:"encoding,omitempty" enum:"text,base64" jsonschema:"base64 for an image other than SVG; text if left out"`
}

func decode(files []given) ([]microsite.File, error) {
	out := make([]microsite.File, len(files))
	for i, f := range files {
		out[i] = microsite.File{Path: f.Path, Content: []byte(f.Content)}
		if f.Encoding != "base64" {
			continue
		}
		var err error
		if out[i].Content, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(f.Content), "")); err != nil {
			name := fmt.Sprintf("files[%d].content", i)
			return nil, fault.InvalidField(name, "malformed_base64", name+" is no base64.")
		}
	}
	return out, nil
}
