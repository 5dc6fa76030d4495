package functions

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"standmeet/shared/op"
)

// What anybody may send is small, and more is refused before it is looked at:
// there is no database here that could be asked.
func TestBodiesOfStrangersAreSmall(t *testing.T) {
	t.Parallel()
	cat := Catalog(Deps{})
	h := cat.Handler(&op.Server{})
	for _, o := range cat.Ops() {
		s := o.Spec()
		if s.Access == op.Owner || s.Method == http.MethodGet {
			continue
		}
		// a message of 10,000 characters, each escaped as a surrogate pair, has 120,000 bytes
		if s.MaxBody > 256<<10 {
			t.Errorf("%s takes %d bytes of anybody", s.Name, s.MaxBody)
		}
		path := strings.NewReplacer("{handle}", "me", "{id}", "00000000-0000-4000-8000-000000000000").Replace(s.Path)
		for name, length := range map[string]int64{"told": s.MaxBody + 1, "not told": -1} {
			r := httptest.NewRequestWithContext(t.Context(), s.Method, path, strings.NewReader(fmt.Sprintf(`{"x":"%s"}`, strings.Repeat("x", int(s.MaxBody)))))
			r.Header.Set("Content-Type", "application/json")
			r.ContentLength = length
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), "body_too_large") {
				t.Errorf("%s, length %s: %d %s", s.Name, name, w.Code, w.Body)
			}
		}
	}
}
