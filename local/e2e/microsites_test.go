package e2e

import (
	"strings"
	"testing"
)

// A microsite from its first file to its visitors, through real processes.
func TestMicrosites(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway,relay,workers")
	over := func(name string, arguments object) answer {
		t.Helper()
		a := s.over("mcp", name, arguments)
		if a.status/100 != 2 {
			t.Fatalf("%s: %d %s", name, a.status, a.raw)
		}
		return a
	}
	over("microsites.create", object{"slug": "talk", "files": []object{{"path": "index.tsx", "content": "export default () => <h1>Hello</h1>"}, {"path": "words.md", "content": "# Words"}}})
	build := over("microsites.build", object{"slug": "talk"})
	if build.text("status") != "queued" || build.text("sentence") == "" {
		t.Error(build.raw)
	}
	past := over("microsites.await_settled", object{"since": build.at("position"), "wait_seconds": 20})
	done := over("microsites.get_build", object{"build_id": build.text("build_id")})
	if done.text("status") != "built" || past.text("wait.ended") != "observed" || !strings.Contains(past.raw, build.text("build_id")) {
		t.Fatalf("%s %s", past.raw, done.raw)
	}
	live := over("microsites.publish", object{"slug": "talk", "build_id": build.text("build_id")}).text("site.url")
	anyone := *s
	anyone.token = ""
	for _, address := range []string{live, done.text("preview_url")} {
		path, ours := strings.CutPrefix(address, s.base)
		if a := anyone.call("GET", path, nil); !ours || a.status != 200 || !strings.Contains(a.raw, `<div id="root">`) || !strings.Contains(a.header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%s: %d %s", address, a.status, a.raw)
		}
		if a := anyone.call("GET", path+"words", nil); a.status != 200 || !strings.Contains(a.raw, "Words</h1>") {
			t.Errorf("%s: %d %s", address, a.status, a.raw)
		}
		if a := anyone.call("GET", path+"gone", nil); a.status != 404 || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d %s", address, a.status, a.raw)
		}
		if a := anyone.call("POST", path, object{}); a.status != 405 {
			t.Errorf("%s: %d", address, a.status)
		}
	}
	if a := anyone.call("GET", "/s//evil.example/talk/", nil); a.status != 404 {
		t.Errorf("%d %v", a.status, a.header)
	}
}
