package mcp_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
)

// Whatever is posted gets an answer: nothing at all, or JSON, and never a 5xx.
func FuzzMessage(f *testing.F) {
	for _, body := range []string{
		initialize, `[]`, `null`, `[null,[]]`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"corpus_create","arguments":{"genre":"raw"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"x"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{}}}}}`,
	} {
		f.Add(body, "")
		f.Add(body, "2026-07-28")
	}
	h := handlerOf(newWorld())
	f.Fuzz(func(t *testing.T, body, version string) {
		r := httptest.NewRequest("POST", "/mcp", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+owner)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Mcp-Protocol-Version", version)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 500 || (w.Code == 202) != (w.Body.Len() == 0) || w.Body.Len() > 0 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%q %q: %d %s", body, version, w.Code, w.Body)
		}
	})
}
