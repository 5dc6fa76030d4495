package apigw

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Answers of requests that run at once are never mixed up.
func TestInProcessAnswersAreNotShared(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(InProcess(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat(r.URL.Query().Get("who")+" ", 300))
	})))
	t.Cleanup(srv.Close)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			who := fmt.Sprintf("caller%d", i)
			for range 60 {
				res, err := srv.Client().Get(srv.URL + "/?who=" + who)
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(res.Body)
				_ = res.Body.Close() // read to its end
				if want := strings.Repeat(who+" ", 300); err != nil || string(body) != want {
					t.Errorf("%s got %.40q, %v", who, body, err)
					return
				}
			}
		})
	}
	all.Wait()
}
