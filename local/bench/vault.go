package bench

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"standmeet/functions/obsidian"
	"standmeet/local/stack"
	"standmeet/shared/auth"
	"standmeet/shared/blob"
	"standmeet/shared/op"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
)

// vault is a zip of n notes in folders, with front matter, tags and links, and an
// attachment for each twentieth.
func (b *bench) vault(n int) (raw []byte, err error) {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	add := func(name, content string) {
		w, failed := z.Create(name)
		if failed == nil {
			_, failed = w.Write([]byte(content))
		}
		err = errors.Join(err, failed)
	}
	for i := range n {
		add(fmt.Sprintf("wiki/Folder %d/Note %d.md", i%5, i), fmt.Sprintf("---\ntags: [bench, t%d]\naliases: [N%d]\n---\n#inline/%d [[Note %d]] [[N%d|by alias]] ![[p%d.png]]\n\n%s", i%50, i, i%9, (i*7+1)%n, (i*3+2)%n, i/20, b.sample.note(i)))
		if i%20 == 0 {
			add(fmt.Sprintf("files/p%d.png", i/20), fmt.Sprintf("picture %d", i))
		}
	}
	err = errors.Join(err, z.Close())
	return out.Bytes(), err
}

// vaults measures B8: the import of a vault by the operation, until its answer
// says what is committed, and then until search knows every note. The floor is
// one statement that inserts as many bare notes with the same texts.
func (b *bench) vaults(ctx context.Context) error {
	n, times := pick(b, 2_000, 200), pick(b, 3, 1)
	raw, err := b.vault(n)
	if err != nil {
		return err
	}
	blobs, err := os.MkdirTemp("", "standmeet-bench-blobs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(blobs)
	var took, found, again, floor, ratio []float64
	var jobs, extra int
	for i := range times {
		if err := b.inDatabase(ctx, fmt.Sprintf("vault_%d", i), func(url string, db *pg.DB) (err error) {
			s, err := stack.Start(ctx, stack.Options{URL: url}, stack.Parts{Gateway: true, Relay: true, Workers: true})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Stop()) }()
			owner, err := b.owner(ctx, db)
			if err != nil {
				return err
			}
			bodies := make([]string, n)
			for i := range bodies {
				bodies[i] = b.sample.note(i)
			}
			began := time.Now()
			if _, err := db.Exec(ctx, `INSERT INTO notes (id, owner_id, genre, body) SELECT uuid_v7(), $1, 'raw', body FROM unnest($2::text[]) AS u (body)`, uuid.New(), bodies); err != nil {
				return err
			}
			floor = append(floor, ms(time.Since(began)))
			waiting := func(of string) (left int, err error) {
				err = db.QueryRow(ctx, of).Scan(&left)
				return left, err
			}
			const unindexed = `SELECT count(*) FROM notes n LEFT JOIN note_search s ON s.note_id = n.id WHERE s.version IS NULL OR s.version < n.version`
			settle := func() error {
				for {
					if left, err := waiting(unindexed); err != nil || left == 0 {
						return err
					}
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(5 * time.Millisecond):
					}
				}
			}
			if err := settle(); err != nil {
				return err
			}
			before, err := waiting(`SELECT count(*) FROM tasks WHERE subscriber = 'corpus.index'`)
			if err != nil {
				return err
			}
			d := obsidian.Deps{DB: s.DB, Blobs: blob.NewDir(filepath.Join(blobs, fmt.Sprint(i)), secret.Keys{}, "")}
			h := op.NewCatalog(obsidian.Import(d)).Handler(&op.Server{Authenticate: func(context.Context, auth.Credentials) (auth.Caller, error) {
				return auth.Caller{Kind: auth.Owner, OwnerID: owner, Scopes: []string{auth.AllScopes}}, nil
			}})
			put := func() (a obsidian.Imported, err error) {
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/obsidian/import", bytes.NewReader(raw))
				r.Header.Set("Content-Type", "application/zip")
				r.Header.Set("Authorization", "Bearer me")
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code != http.StatusOK {
					return a, fmt.Errorf("%d %s", w.Code, w.Body)
				}
				return a, json.Unmarshal(w.Body.Bytes(), &a)
			}
			return b.profile1(ctx, i, "B8", url, func() error {
				began := time.Now()
				a, err := put()
				if err != nil {
					return err
				}
				committed := time.Now()
				if err := settle(); err != nil {
					return err
				}
				took, found = append(took, ms(committed.Sub(began))), append(found, ms(time.Since(committed)))
				ratio = append(ratio, took[i]/floor[i])
				after, err := waiting(`SELECT count(*) FROM tasks WHERE subscriber = 'corpus.index'`)
				if err != nil {
					return err
				}
				jobs, extra = after-before, a.Folders.Created
				if a.Created != n || len(a.Errors) > 0 {
					return fmt.Errorf("%d of %d notes were imported: %v", a.Created, n, a.Errors)
				}
				began = time.Now()
				if a, err = put(); err != nil {
					return err
				}
				if again = append(again, ms(time.Since(began))); a.Unchanged != n {
					return fmt.Errorf("%d of %d notes were unchanged", a.Unchanged, n)
				}
				return nil
			})
		}); err != nil {
			return err
		}
	}
	b.report.Figures["B8"] = Figure{
		What: fmt.Sprintf("import of a vault of %d notes, until committed", n), Unit: "ms", Value: round(middle(took), 0), Floor: round(middle(floor), 0), Ratio: round(middle(ratio), 2), Rounds: times,
		Goal:   "≤ 2000 ms, all found ≤ 3000 ms later, index jobs ≤ notes + 10",
		Detail: map[string]any{"each_round": took, "found_after_ms": round(middle(found), 0), "again_ms": round(middle(again), 0), "index_jobs": jobs, "notes": n, "folder_notes": extra, "zip_bytes": len(raw)},
	}.judge(func(f Figure) bool { return f.Value <= 2_000 && middle(found) <= 3_000 && jobs <= n+10 })
	return nil
}
