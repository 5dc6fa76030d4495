package config

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
)

// secretVariables are those whose values may lie in AWS Secrets Manager.
func secretVariables() []string { return []string{"DATABASE_URL", "SECRET_KEY", "SMTP_URL"} }

// secretPatience bounds how long a process waits for all of its secrets.
const secretPatience = 10 * time.Second

// WithSecrets returns a lookup that knows what lookup does, and the values of
// those variables that lie in AWS Secrets Manager: DATABASE_URL_ARN,
// SECRET_KEY_ARN and SMTP_URL_ARN each name a secret whose text is the value of
// the variable without _ARN. Each is read once, now, with the credentials that
// the AWS SDK finds and in the region that the ARN names; without such a
// variable nothing is asked. The error joins every fault, one line each,
// beginning with the variable's name; it holds no secret.
func WithSecrets(ctx context.Context, lookup func(string) (string, bool)) (func(string) (string, bool), error) {
	return withSecrets(ctx, lookup, func(ctx context.Context, region string) (aws.Config, error) {
		return config.LoadDefaultConfig(ctx, config.WithRegion(region))
	})
}

func withSecrets(ctx context.Context, lookup func(string) (string, bool), connect func(context.Context, string) (aws.Config, error)) (func(string) (string, bool), error) {
	ctx, cancel := context.WithTimeout(ctx, secretPatience)
	defer cancel()
	known := map[string]string{}
	r := reader{lookup: lookup}
	for _, name := range secretVariables() {
		at := name + "_ARN"
		id := r.get(at)
		if id == "" {
			continue
		}
		if r.get(name) != "" {
			r.fail(at, "and %s are both set: unset one of them", name)
			continue
		}
		place, err := arn.Parse(id)
		if err != nil || place.Service != "secretsmanager" {
			r.fail(at, "must be the ARN of a secret of AWS Secrets Manager")
			continue
		}
		value, err := readSecret(ctx, id, place.Region, connect)
		if err != nil {
			r.fail(at, "can't be read: %w", err)
			continue
		}
		known[name] = value
	}
	return func(name string) (string, bool) {
		if value, ok := known[name]; ok {
			return value, true
		}
		return lookup(name)
	}, errors.Join(r.faults...)
}

func readSecret(ctx context.Context, id, region string, connect func(context.Context, string) (aws.Config, error)) (string, error) {
	c, err := connect(ctx, region)
	if err != nil {
		return "", err
	}
	out, err := secretsmanager.NewFromConfig(c).GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &id})
	if err != nil {
		return "", err
	}
	if aws.ToString(out.SecretString) == "" {
		return "", fmt.Errorf("the secret holds no text")
	}
	return *out.SecretString, nil
}
