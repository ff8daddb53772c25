package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/caisson-dev/caisson/internal/task"
)

// sign signs a request anew, or one that was not signed. Only what a signature
// must cover is covered: the host, the type and digest of the body, and what
// begins with x-amz-; the gate writes other fields after this.
func sign(ctx context.Context, h *Handle, r *Request, header http.Header, s *secret, now time.Time) error {
	no := func(format string, args ...any) error {
		return task.Errorf(task.CodeDenied, "broker.sign", "the credential %s cannot sign this request: "+format, append([]any{h.Name}, args...)...)
	}
	if v := header.Get("Authorization"); v != "" {
		if region, service := signedFor(v); region != h.Region || service != h.Service {
			return no("it is signed for %s in %s, and the handle is for %s in %s", short(service), short(region), h.Service, h.Region)
		}
	}
	digest := header.Get("X-Amz-Content-Sha256")
	switch {
	case strings.HasPrefix(digest, "STREAMING-AWS4-"):
		return task.Errorf(task.CodeDenied, "broker.sign", "the credential %s cannot sign a body in chunks that carry signatures of their own", h.Name).
			WithHint("have the client send it unsigned over TLS (of the AWS SDKs: payload signing off), or with its digest")
	case digest != "":
	case r.Length == 0:
		sum := sha256.Sum256(nil)
		digest = hex.EncodeToString(sum[:])
	case r.Sum == nil:
		return no("the digest of its body is not known")
	default:
		sum, err := r.Sum()
		if err != nil {
			return err
		}
		digest = hex.EncodeToString(sum)
	}
	host := hostField(r)
	req := &http.Request{Method: r.Method, Host: host, Header: http.Header{}, ContentLength: max(r.Length, 0),
		URL: &url.URL{Scheme: "https", Host: host, Opaque: "//" + host + r.Path, RawQuery: r.Query}}
	for name, v := range header {
		if low := strings.ToLower(name); low == "content-type" || low == "content-md5" || strings.HasPrefix(low, "x-amz-") && low != "x-amz-date" && low != "x-amz-security-token" {
			req.Header[name] = v
		}
	}
	signer := v4.NewSigner(func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping = h.Service == "s3"
		o.DisableHeaderHoisting = true
	})
	// The signer takes texts, which cannot be overwritten; they live as long as
	// this request.
	err := signer.SignHTTP(ctx, aws.Credentials{AccessKeyID: string(s.id), SecretAccessKey: string(s.value), SessionToken: string(s.session)}, req, digest, h.Service, h.Region, now.UTC())
	if err != nil {
		return no("%v", err)
	}
	for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token"} {
		header.Del(name)
		if v := req.Header.Get(name); v != "" {
			header.Set(name, v)
		}
	}
	return nil
}

// signedFor is the region and the service of a signature.
func signedFor(authorization string) (region, service string) {
	_, rest, _ := strings.Cut(authorization, "Credential=")
	scope, _, _ := strings.Cut(rest, ",")
	parts := strings.Split(strings.TrimSpace(scope), "/")
	if len(parts) != 5 || parts[4] != "aws4_request" {
		return "", ""
	}
	return parts[2], parts[3]
}

func short(s string) string {
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	if s == "" {
		return "nothing"
	}
	return s
}
