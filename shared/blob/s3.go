package blob

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// S3 keeps blobs in a bucket, which must exist.
type S3 struct {
	bucket string
	client *s3.Client
}

// S3Options say where the bucket is.
type S3Options struct {
	Bucket string
	// Region and Credentials: if empty, what the AWS SDK finds, in a Lambda function
	// the function's own.
	Region      string
	Credentials aws.CredentialsProvider
	// Endpoint is the URL of a store that speaks like S3; if empty, the region's.
	Endpoint string
}

// NewS3 connects to nothing yet.
func NewS3(ctx context.Context, o S3Options) (*S3, error) {
	c, err := config.LoadDefaultConfig(ctx, config.WithRegion(o.Region), config.WithCredentialsProvider(o.Credentials), config.WithBaseEndpoint(o.Endpoint),
		// the checksums of S3 are unknown to many of those who speak like it
		config.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired),
		config.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired))
	if err != nil {
		return nil, fmt.Errorf("blob: S3: %w", err)
	}
	if c.Region == "" && o.Endpoint != "" {
		c.Region = "us-east-1" // a signature names one
	}
	return &S3{o.Bucket, s3.NewFromConfig(c, func(s *s3.Options) { s.UsePathStyle = o.Endpoint != "" })}, nil
}

// Put is as in Store.
func (s *S3) Put(ctx context.Context, key string, content []byte, m Meta) error {
	if !valid(key) {
		return fmt.Errorf("blob: %q is no key", key)
	}
	_, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &s.bucket, Key: &key, Body: bytes.NewReader(content),
		ContentLength: aws.Int64(int64(len(content))), ContentType: aws.String(cmp.Or(m.ContentType, octets)),
	})
	return s.fault(ctx, err)
}

// Get is as in Store.
func (s *S3) Get(ctx context.Context, key string) (Object, error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &key})
	if err != nil {
		return Object{}, s.fault(ctx, err)
	}
	return Object{Body: out.Body, Size: aws.ToInt64(out.ContentLength), ContentType: aws.ToString(out.ContentType), ETag: aws.ToString(out.ETag)}, nil
}

// maxDelete is how many keys one request of S3 may name.
const maxDelete = 1000

// Delete is as in Store.
func (s *S3) Delete(ctx context.Context, keys ...string) error {
	for len(keys) > 0 {
		some := keys[:min(len(keys), maxDelete)]
		keys = keys[len(some):]
		d := types.Delete{Quiet: aws.Bool(true)}
		for _, key := range some {
			d.Objects = append(d.Objects, types.ObjectIdentifier{Key: aws.String(key)})
		}
		out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &s.bucket, Delete: &d})
		if err != nil {
			return s.fault(ctx, err)
		}
		for _, e := range out.Errors {
			if code := aws.ToString(e.Code); code != "NoSuchKey" {
				return unavailable(fmt.Errorf("S3: %s: %s", code, aws.ToString(e.Message)))
			}
		}
	}
	return nil
}

// PresignPut is as in Store.
func (s *S3) PresignPut(ctx context.Context, key string, size int64, life time.Duration) (Upload, error) {
	if !valid(key) {
		return Upload{}, fmt.Errorf("blob: %q is no key", key)
	}
	until := time.Now().Add(life)
	// the length is signed, so that another one is refused
	out, err := s3.NewPresignClient(s.client).PresignPutObject(ctx, &s3.PutObjectInput{
		Bucket: &s.bucket, Key: &key, ContentLength: &size, ContentType: aws.String(octets),
	}, s3.WithPresignExpires(life))
	if err != nil {
		return Upload{}, s.fault(ctx, err)
	}
	return Upload{URL: out.URL, Headers: map[string]string{"Content-Type": octets}, ExpiresAt: until.Truncate(time.Second)}, nil
}

// PresignGet is as in Store.
func (s *S3) PresignGet(ctx context.Context, key, download string, life time.Duration) (string, error) {
	if !valid(key) {
		return "", fmt.Errorf("blob: %q is no key", key)
	}
	in := &s3.GetObjectInput{Bucket: &s.bucket, Key: &key}
	if download != "" {
		in.ResponseContentDisposition = aws.String(attachment(download))
	}
	out, err := s3.NewPresignClient(s.client).PresignGetObject(ctx, in, s3.WithPresignExpires(life))
	if err != nil {
		return "", s.fault(ctx, err)
	}
	return out.URL, nil
}

func (s *S3) fault(ctx context.Context, err error) error {
	var missing *types.NoSuchKey
	switch {
	case err == nil:
		return nil
	case errors.As(err, &missing):
		return notFound()
	case ctx.Err() != nil:
		return fmt.Errorf("%w (%w)", ctx.Err(), err)
	}
	return unavailable(fmt.Errorf("S3: %w", err))
}
