package workers

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"standmeet/shared/auth"
)

// browser starts one, or skips the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		t.Skip("no browser is installed: chromium or google-chrome is wanted")
	}
	limited, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(limited, chromedp.WithAllocatorOptions(chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU))
	t.Cleanup(cancel)
	return ctx
}

// viewed is what a browser met while it showed pages.
type viewed struct {
	mu       sync.Mutex
	loaded   []string
	troubles []string
}

func (v *viewed) listen(event any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	trouble := func(format string, args ...any) { v.troubles = append(v.troubles, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *network.EventResponseReceived:
		v.loaded = append(v.loaded, e.Response.URL)
		if e.Response.Status >= 400 {
			trouble("%d %s", e.Response.Status, e.Response.URL)
		}
	case *runtime.EventExceptionThrown:
		trouble("exception: %v", e.ExceptionDetails)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			trouble("console: %s %s", e.Entry.Text, e.Entry.URL)
		}
	}
}

// take gives what was met until now, and begins anew.
func (v *viewed) take() (loaded, troubles []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	loaded, troubles, v.loaded, v.troubles = v.loaded, v.troubles, nil, nil
	return loaded, troubles
}

// Pages run in a real browser, at every address, whatever their scripts hold; and
// they can do nothing in their owner's name.
func TestMicrositeInABrowser(t *testing.T) {
	t.Parallel()
	ctx := browser(t)
	s := newShop(t)
	s.builds()
	s.put(
		"index.tsx", `
			import { useEffect, useState } from "react";
			import dot from "./img/a.svg";
			import "./styles/deep/x.css";
			const strange = "<!-- <script> </script> -->";
			export default function Page() {
				const [n, set] = useState(0), [facts, tell] = useState("");
				useEffect(() => { fetch("facts.json").then((r) => r.json()).then((f) => tell(f.word)) }, []);
				return <main>
					<h1>{strange}</h1>
					<button id="more" onClick={() => set(n + 1)} style={{ color: "rgb(1, 2, 3)" }}>pressed {n}</button>
					<img id="dot" src={dot} alt="dot" /><p id="facts">{facts}</p>
					<div className="deep">deep</div><footer id="footer">the footer</footer>
				</main>;
			}`,
		"styles/deep/x.css", `@import "../base.css"; .deep { background: url(../../img/a.svg); width: 60px; height: 60px }`, "styles/base.css", "footer { color: rgb(4, 5, 6) }",
		"img/a.svg", `<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"><circle cx="20" cy="20" r="18" fill="teal"/></svg>`,
		"facts.json", `{"word": "fetched"}`,
		"p/x.html", `<!doctype html><html><head><title>x</title><link rel="stylesheet" href="../styles/deep/x.css"></head><body><script>const a = "<!-- <\/script>";</script>
			<h1 style="color: rgb(7, 8, 9)" id="head">X</h1><img id="dot" src="/img/a.svg"><div class="deep">deep</div><p><a id="home" href="/">home</a> <a id="words" href="../words.md">words</a></p>
			<script>document.getElementById("head").textContent = "ran";</script><footer id="footer">the footer</footer></body></html>`,
		"words.md", "# Words\n\n| a | b |\n|:-:|---|\n| 1 | 2 |\n\n```js\n</script><!--\n```\n\n![dot](img/a.svg)\n\n<footer id=\"footer\">the footer</footer>\n",
		"spy.html", `<script>
			const out = document.createElement("pre"); out.id = "found"; document.body.append(out);
			const found = {};
			const attempt = async (name, f) => { try { found[name] = String(await f()) } catch (e) { found[name] = "refused" } };
			(async () => {
				await attempt("cookie", () => document.cookie);
				await attempt("storage", () => localStorage.length);
				await attempt("account", () => fetch("/v1/account", { credentials: "include" }).then((r) => r.text()));
				await attempt("elsewhere", () => fetch("https://example.com/"));
				await attempt("eval", () => eval("1"));
				await attempt("inline", () => { const s = document.createElement("script"); s.textContent = "window.inlined = 1"; document.body.append(s); if (!window.inlined) throw 0; });
				await attempt("post", () => fetch("/v1/corpus", { method: "POST", credentials: "include", mode: "no-cors", body: "{}" }).then(() => { throw 0 }));
				out.textContent = JSON.stringify(found);
				document.title = "done";
			})();
		</script>`,
	)
	build := s.built()
	s.ok("POST", "/v1/microsites/x/publish", object{"build_id": build})

	met := &viewed{}
	if err := chromedp.Listen(ctx, met.listen); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	// the owner is signed in, in the same browser
	yes := true
	for _, c := range []network.SetCookieParams{{Name: auth.SessionCookie, Value: "the-owners-session", URL: s.base, HTTPOnly: &yes, SameSite: network.CookieSameSiteLax}, {Name: "readable", Value: "yes", URL: s.base}} {
		if _, err := chromedp.Call(ctx, network.SetCookie, c); err != nil {
			t.Fatal(err)
		}
	}
	shots := os.Getenv("SCREENSHOTS") // a directory to look at them
	// look opens a page, waits until condition holds there, and gives what it has
	look := func(path, condition, wanted string) (got string) {
		t.Helper()
		if err := chromedp.Do(ctx, chromedp.Navigate(s.base+path)); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if _, err := chromedp.Run(ctx, chromedp.Poll[bool](condition)); err != nil {
			t.Fatalf("%s: %s: %v", path, condition, err)
		}
		got, err := chromedp.Run(ctx, chromedp.Evaluate[string]("(async () => { "+wanted+" })()", chromedp.EvalAwaitPromise))
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if shots != "" {
			png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
			if err == nil {
				err = os.WriteFile(filepath.Join(shots, strings.ReplaceAll(strings.Trim(path, "/"), "/", "-")+".png"), png, 0o600)
			}
			if err != nil {
				t.Error(err)
			}
		}
		return got
	}
	const (
		see    = "const at = (id) => document.getElementById(id), colour = (e) => getComputedStyle(e).color; "
		images = "await at('dot').decode(); const width = at('dot').naturalWidth; const behind = getComputedStyle(document.querySelector('.deep')).backgroundImage.includes('/_a/a-'); "
	)
	for _, root := range []string{"/s/me/x/", "/s/me/x", "/preview/" + build + "/"} {
		got := look(root, `document.getElementById("facts")?.textContent === "fetched"`, see+`at("more").click(); await new Promise((r) => setTimeout(r)); at("more").click();
			while (at("more").textContent !== "pressed 2") await new Promise((r) => setTimeout(r, 10)); `+images+`
			return [document.querySelector("h1").textContent, width, behind, colour(at("footer")), colour(at("more"))].join("; ")`)
		if want := "<!-- <script> </script> -->; 40; true; rgb(4, 5, 6); rgb(1, 2, 3)"; got != want {
			t.Errorf("%s: %s, want %s", root, got, want)
		}
		if loaded, troubles := met.take(); len(troubles) > 0 || len(loaded) < 5 {
			t.Errorf("%s: %v, loaded %v", root, troubles, loaded)
		}
	}
	for _, root := range []string{"/s/me/x/", "/preview/" + build + "/"} {
		for _, page := range []string{"p/x", "p/x.html", "p/x/"} {
			got := look(root+page, `document.getElementById("head")?.textContent === "ran"`, see+images+`return [width, behind, colour(at("head")), at("footer").textContent].join("; ")`)
			if want := "40; true; rgb(7, 8, 9); the footer"; got != want {
				t.Errorf("%s: %s, want %s", root+page, got, want)
			}
			if loaded, troubles := met.take(); len(troubles) > 0 || len(loaded) < 4 {
				t.Errorf("%s: %v, loaded %v", root+page, troubles, loaded)
			}
		}
		if got := look(root+"words", `document.getElementById("footer") !== null`, see+`await document.querySelector("img").decode(); return [document.querySelector("code").textContent.trim(), getComputedStyle(document.querySelector("td")).textAlign, document.title].join("; ")`); got != "</script><!--; center; Words" {
			t.Errorf("%s: %s", root, got)
		}
		if _, troubles := met.take(); len(troubles) > 0 {
			t.Errorf("%s: %v", root, troubles)
		}
		for id, to := range map[string]string{"home": root, "words": root + "words.html"} {
			look(root+"p/x", `document.getElementById("head")?.textContent === "ran"`, "return ''")
			if err := chromedp.Do(ctx, chromedp.Click("#"+id)); err != nil {
				t.Error(err)
			}
			if _, err := chromedp.Run(ctx, chromedp.Poll[bool](fmt.Sprintf("location.href === %q && document.getElementById('footer') !== null", s.base+to))); err != nil {
				t.Errorf("%s doesn't lead to %s: %v", id, to, err)
			}
		}
		_, _ = met.take()
	}
	raw := look("/s/me/x/spy", `document.title === "done"`, `return document.getElementById("found").textContent`)
	for _, name := range []string{"cookie", "storage", "account", "elsewhere", "eval", "inline", "post"} {
		if !strings.Contains(raw, `"`+name+`":"refused"`) {
			t.Errorf("a page's script may do %s: %s", name, raw)
		}
	}
	// what a page sends to operations all the same is nobody's
	for _, want := range []string{"GET ", "POST "} {
		if got := <-s.cookies; got != want {
			t.Errorf("a page's script sent %q", got)
		}
	}
	if v := s.looks(http.MethodGet, "/s/me/x/spy"); strings.Contains(v.body, "const out") {
		t.Error("a script stands in the page")
	}
}
