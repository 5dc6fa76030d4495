package config

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// manager answers as AWS Secrets Manager does.
func manager(t *testing.T, secrets map[string]string) func(context.Context, string) (aws.Config, error) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ SecretId string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Header.Get("X-Amz-Target") != "secretsmanager.GetSecretValue" {
			t.Errorf("%v, %s", err, r.Header.Get("X-Amz-Target"))
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		value, ok := secrets[in.SecretId]
		if !ok {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"__type": "ResourceNotFoundException", "Message": "no such secret"}`)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"ARN": in.SecretId, "SecretString": value})
	}))
	t.Cleanup(server.Close)
	return func(_ context.Context, region string) (aws.Config, error) {
		return aws.Config{Region: region, BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("id", "secret", "")}, nil
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	const there, gone = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:key-a1B2c3", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:gone-a1B2c3"
	keys := strings.Repeat("QUJD", 11) // 33 bytes
	connect := manager(t, map[string]string{there: keys})
	for name, c := range map[string]struct {
		env  map[string]string
		want string // of SECRET_KEY
		err  string
	}{
		"none":    {env: map[string]string{"SECRET_KEY": "plain"}, want: "plain"},
		"one":     {env: map[string]string{"SECRET_KEY_ARN": there}, want: keys},
		"both":    {env: map[string]string{"SECRET_KEY_ARN": there, "SECRET_KEY": "plain"}, want: "plain", err: "SECRET_KEY_ARN and SECRET_KEY are both set"},
		"no ARN":  {env: map[string]string{"SECRET_KEY_ARN": "key"}, err: "SECRET_KEY_ARN must be the ARN of a secret"},
		"of else": {env: map[string]string{"SMTP_URL_ARN": "arn:aws:s3:::bucket"}, err: "SMTP_URL_ARN must be the ARN of a secret"},
		"gone":    {env: map[string]string{"DATABASE_URL_ARN": gone, "SECRET_KEY_ARN": there}, want: keys, err: "DATABASE_URL_ARN can't be read: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lookup, err := withSecrets(t.Context(), func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }, connect)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), c.err) || strings.Contains(err.Error(), keys)) {
				t.Errorf("%v", err)
			}
			if got, _ := lookup("SECRET_KEY"); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
