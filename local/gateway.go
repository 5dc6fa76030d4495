package main

import (
	"context"
	"net/http"
	"path"
	"strings"

	"standmeet/functions"
	"standmeet/shared/blob"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/op/apigw"
	"standmeet/shared/pg"
)

// gateway stands in for the API Gateway: it routes as the deployed one does, by
// the catalog, and hands each function an event in JSON.
func gateway(f *functions.Functions, db *pg.DB, blobs blob.Store) (http.Handler, error) {
	mux := http.NewServeMux()
	routes := []struct{ pattern, function string }{
		{"/mcp", functions.MCP},
		{"GET /openapi.json", functions.OpenAPI},
		{"GET /{$}", functions.Pages},
		{"/sign-in", functions.Pages},
		{"/sign-in/mail", functions.Pages},
		{"/sign-out", functions.Pages},
		{"/s/", functions.Site},
		{"/preview/", functions.Site},
	}
	for _, o := range f.Catalog.Ops() {
		s := o.Spec()
		routes = append(routes, struct{ pattern, function string }{s.Method + " " + s.Path, s.Name})
	}
	served := map[string]http.Handler{}
	serve := func(name string) (http.Handler, error) {
		if h := served[name]; h != nil {
			return h, nil
		}
		endpoint, err := f.Endpoint(name)
		if err != nil {
			return nil, err
		}
		served[name] = apigw.InProcess(endpoint)
		return served[name], nil
	}
	for _, r := range routes {
		h, err := serve(r.function)
		if err != nil {
			return nil, err
		}
		mux.Handle(r.pattern, h)
	}
	rest, err := serve(functions.Any)
	if err != nil {
		return nil, err
	}
	guest, err := serve(functions.Guest)
	if err != nil {
		return nil, err
	}
	if dir, ok := blobs.(*blob.Dir); ok {
		mux.Handle(dir.Gate())
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { status(w) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if _, err := db.Exec(ctx, `SELECT 1`); err != nil {
			op.WriteProblem(w, op.RequestID(r), &fault.Fault{Kind: fault.Unavailable, Code: "database_unavailable", Err: err,
				Detail: "The database can't be reached right now."})
			return
		}
		status(w)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/@") { // a pattern of the mux can't say so
			guest.ServeHTTP(w, r)
			return
		}
		// the mux would redirect a path that isn't clean; the gateway does not
		escaped := r.URL.EscapedPath()
		if clean := path.Clean("/" + escaped); clean == escaped || clean+"/" == escaped {
			if _, pattern := mux.Handler(r); pattern != "" {
				mux.ServeHTTP(w, r)
				return
			}
		}
		rest.ServeHTTP(w, r)
	}), nil
}

func status(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte("{\"status\":\"ok\"}\n")) // the client is gone if this fails
}
