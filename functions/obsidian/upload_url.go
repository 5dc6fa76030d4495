package obsidian

import (
	"context"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/vault"
)

const uploadLife = time.Hour

// UploadURL declares obsidian.upload_url.
func UploadURL(d Deps) *op.Operation {
	type in struct {
		Size int64 `json:"size" minimum:"1" maximum:"209715200" jsonschema:"the zip's size in bytes"`
	}
	type out struct {
		UploadKey string            `json:"upload_key" jsonschema:"what obsidian.import takes once the upload is done"`
		URL       string            `json:"url"`
		Method    string            `json:"method" enum:"PUT"`
		Headers   map[string]string `json:"headers" jsonschema:"headers to send with the upload"`
		ExpiresAt time.Time         `json:"expires_at" jsonschema:"until when the address takes the upload"`
	}
	return op.New(op.Spec{
		Name: "obsidian.upload_url", Method: "POST", Path: "/v1/obsidian/upload-url", Scope: "obsidian:write",
		Summary: "Get an address for a large vault",
		Description: `For a vault's zip above 4 MiB, of 200 MiB at most: gives an address that takes it. Send the zip there with PUT, with exactly the size that you name here, and then call obsidian.import with upload_key. Example: {"size": 52428800}. ` +
			"Nothing is imported by this.",
		Tool: &op.Tool{},
	}, func(ctx context.Context, c auth.Caller, in in) (o out, err error) {
		o.UploadKey, o.Method = uuid.NewString(), "PUT"
		u, err := d.Blobs.PresignPut(ctx, uploadBlob(c.OwnerID, o.UploadKey), min(in.Size, vault.MaxUnpacked), uploadLife)
		o.URL, o.Headers, o.ExpiresAt = u.URL, u.Headers, u.ExpiresAt
		return o, err
	})
}
