package boundary

import (
	"fmt"
	"testing"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// TestFetchEndpoint: rules about calls are asked about the very place that the
// gate goes to, whatever another reader of addresses makes of it.
func TestFetchEndpoint(t *testing.T) {
	for at, want := range map[string]string{
		"https://a.test/p?q=1":       "a.test 443 /p",
		"http://A.Test.:8080":        "a.test 8080 /",
		"https://a.test/%zz":         "a.test 443 /%zz", // no code: net/url reads nothing here
		"https://a.test#@b.test/":    "a.test 443 /",
		"https://a.test?@b.test/":    "a.test 443 /",
		"https://[2001:db8::1]/":     " 443 /",
		"https://93.184.215.14:444/": " 444 /",
		"https://a.test@b.test/":     "",
		`https://a.test\@b.test/`:    "",
		"https://a.test:0443/":       "",
		"https://a.test:/":           "",
		"https:a.test":               "",
		"ftp://a.test/":              "",
		"https://[::ffff:10.0.0.1]/": "",
	} {
		a := &contract.FetchArgs{URL: at}
		k := &toolCall{tool: "fetch", args: a}
		p := k.endpoint()
		if err := fetchable(k, a); (err == nil) != (want != "") || (p == nil) != (want == "") {
			t.Errorf("%s: %v, %+v", at, err, p)
			continue
		}
		if p == nil {
			continue
		}
		if got := p.Host + " " + fmt.Sprint(p.Port) + " " + p.Path; got != want || (p.Host == "") != p.Addr.IsValid() {
			t.Errorf("%s: %s, want %s", at, got, want)
		}
	}
}
