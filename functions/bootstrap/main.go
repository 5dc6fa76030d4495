// Command bootstrap is the binary of every Lambda function: _HANDLER says which
// endpoint this instance serves, the name of an operation or one of those that
// package functions declares.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/aws/aws-lambda-go/lambda"

	"standmeet/functions"
	"standmeet/shared/auth"
	"standmeet/shared/blob"
	"standmeet/shared/config"
	"standmeet/shared/egress"
	"standmeet/shared/op/apigw"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/shared/telemetry"
	"standmeet/shared/waiter"
)

func main() {
	handler, err := newHandler(os.LookupEnv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bootstrap:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
	lambda.Start(handler)
}

// newHandler connects to no database yet: a cold start costs what its first
// statement does, and the reading of secrets where there are any to read. An instance serves one request at a time and holds no LISTEN
// connection between two.
func newHandler(lookup func(string) (string, bool)) (lambda.Handler, error) {
	lookup, err := config.WithSecrets(context.Background(), lookup)
	if err != nil {
		return nil, err
	}
	c, err := config.Load(lookup)
	if err != nil {
		return nil, err
	}
	if c.DatabaseURL == "" {
		return nil, fmt.Errorf("DATABASE_URL is not set")
	}
	name, _ := lookup("_HANDLER")
	log := telemetry.NewLogger(os.Stderr, c.LogLevel, true).With("function", name)
	t, err := telemetry.Setup(context.Background(), telemetry.Config{
		Endpoint: c.OTLPEndpoint, Part: "function", Version: functions.Version, Logger: log, Frozen: true,
	})
	if err != nil {
		return nil, err
	}
	db, err := pg.Open(context.Background(), c.DatabaseURL, pg.Options{Name: "standmeet-" + name, Tracer: t.SQL()})
	if err != nil {
		return nil, err
	}
	o := blob.S3Options{Bucket: c.S3Bucket, Region: c.S3Region}
	if c.S3Endpoint != nil {
		o.Endpoint = c.S3Endpoint.String()
	}
	blobs, err := blob.NewS3(context.Background(), o)
	if err != nil {
		return nil, err
	}
	w := waiter.New(db, waiter.Options{Logger: log}, task.FinalSource(db), outbox.FanoutSource(db))
	endpoint, err := functions.New(functions.Deps{
		DB: db, Waiter: w, Receipts: task.NewReceipts(db, w), Auth: &auth.Store{DB: db}, Logger: log, Telemetry: t,
		Keys: c.SecretKey, PublicURL: c.PublicURL, Blobs: blobs, Egress: egress.New(c.Egress), Mail: c.MailSupplier != config.MailNone, MaxWait: c.MaxWait, HTTPS: strings.HasPrefix(c.PublicURL, "https:"), Frozen: true,
	}).Endpoint(name)
	if err != nil {
		return nil, err
	}
	return lambda.NewHandler(apigw.Lambda(endpoint)), nil
}
