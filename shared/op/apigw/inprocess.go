package apigw

import (
	"context"
	"net/http"

	"github.com/aws/aws-lambda-go/lambda"
)

// InProcess serves h as the deployed system does, event JSON → Lambda handler →
// response JSON, without a process in between, and for any number of requests
// at once.
//
// Each request has a handler of its own: the bytes that one answers with lie in
// a buffer that it reuses for its next event, which is safe on Lambda, where
// there is one at a time, and here would mix up answers.
func InProcess(h http.Handler) http.Handler {
	handle := Lambda(h)
	return Gateway(func(ctx context.Context, event []byte) ([]byte, error) {
		return lambda.NewHandler(handle).Invoke(ctx, event)
	})
}
