//go:build linux

package attack

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// farLoans is P45 and P46: a placeholder where it is not lent to, and what a server
// gives back.
func farLoans() {
	f := c.Far
	token := os.Getenv(f.Token)
	bearer := "Authorization: Bearer " + token + "\r\n"
	request := func(method, path, more, body string) string {
		if body != "" {
			more += fmt.Sprintf("Content-Length: %d\r\n", len(body))
		}
		return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %%s\r\nConnection: close\r\n%s\r\n%s", method, path, more, body)
	}
	// secret says that the server got it. What it answers is a word, not the secret.
	secret := func(_, text string) bool { return strings.Contains(text, " secret=yes ") }
	try := func(prop, name, host, at, text string, plain bool) {
		text = strings.Replace(text, "%s", host, 1)
		add(prop, name, func() error {
			if token == "" {
				return unix.ENOENT
			}
			if plain {
				conn, err := reach("connect", host, "80", at)
				if err != nil {
					return err
				}
				got, err := answer(conn, text)
				return came(got, err, secret)
			}
			got, err := private("connect", host, at, host, text)
			return came(got, err, secret)
		})
	}
	lent := "/lent/P45/" // where it may go
	try(Way, "use what is lent where it is lent to", f.Lent, f.LentAt, request("GET", "/lent/WAY/0", bearer, ""), false)
	try("P45", "at another host", f.Allowed, f.AllowedAt, request("GET", lent+"1", bearer, ""), false)
	try("P45", "at another path", f.Lent, f.LentAt, request("GET", "/other/P45/2", bearer, ""), false)
	try("P45", "at a path that begins alike", f.Lent, f.LentAt, request("GET", "/lent2/P45/3", bearer, ""), false)
	try("P45", "at a path in disguise", f.Lent, f.LentAt, request("GET", "/lent/../other/P45/4", bearer, ""), false)
	try("P45", "at a path in disguise, encoded", f.Lent, f.LentAt, request("GET", "/lent/%2e%2e/other/P45/5", bearer, ""), false)
	try("P45", "by another method", f.Lent, f.LentAt, request("PATCH", lent+"6", bearer, ""), false)
	try("P45", "without TLS", f.Lent, f.LentAt, request("GET", lent+"7", bearer, ""), true)
	try("P45", "in another field", f.Lent, f.LentAt, request("GET", lent+"8", "X-Api-Key: "+token+"\r\n", ""), false)
	try("P45", "in the body", f.Lent, f.LentAt, request("POST", lent+"9", "", "token="+token), false)
	try("P45", "in the query", f.Lent, f.LentAt, request("GET", lent+"10?token="+url.QueryEscape(token), "", ""), false)
	try("P45", "as a password", f.Lent, f.LentAt, request("GET", lent+"11", "Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("me:"+token))+"\r\n", ""), false)
	try("P45", "for another host, named in the request", f.Lent, f.LentAt, strings.Replace(request("GET", lent+"12", bearer, ""), "%s", f.Denied, 1), false)
	where := lent + "13"
	add("P45", "in a field for the way out itself", func() error {
		if token == "" {
			return unix.ENOENT
		}
		more := "Proxy-" + bearer
		if !c.Inside {
			more = bearer
		}
		conn, err := reach("", f.Allowed, "80", f.AllowedAt)
		if err != nil {
			return err
		}
		target := ""
		if c.Inside {
			target = "http://" + f.Allowed
		}
		got, err := answer(conn, strings.Replace(request("GET", target+where, more, ""), "%s", f.Allowed, 1))
		return came(got, err, secret)
	})
	add("P45", "where a redirect leads", func() error {
		if token == "" {
			return unix.ENOENT
		}
		got, err := private("connect", f.Lent, f.LentAt, f.Lent, strings.Replace(request("GET", "/lent/WAY/14?to="+url.QueryEscape("https://"+f.Allowed+"/lent/P45/14"), bearer, ""), "%s", f.Lent, 1))
		if err != nil || !strings.Contains(got, "Location: ") {
			return fmt.Errorf("no redirect: %w", errConfined)
		}
		got, err = private("connect", f.Allowed, f.AllowedAt, f.Allowed, strings.Replace(request("GET", lent+"14", bearer, ""), "%s", f.Allowed, 1))
		return came(got, err, secret)
	})
	echoes(f, token, bearer)
}

// echoes is P46: a server that gives back what it got, in every form.
func echoes(f *Far, token, bearer string) {
	forms := map[string]func(string) string{
		"as it is":    func(s string) string { return s },
		"in a field":  func(s string) string { return s },
		"in JSON":     func(s string) string { return strings.Trim(s, `"`) },
		"escaped":     func(s string) string { u, _ := url.QueryUnescape(s); return u },
		"in base64":   func(s string) string { b, _ := base64.StdEncoding.DecodeString(s); return string(b) },
		"in an error": func(s string) string { return s },
		"at the end":  func(s string) string { return s },
	}
	for name, undo := range forms {
		add("P46", "get it back "+name, func() error {
			if token == "" {
				return unix.ENOENT
			}
			form := strings.ReplaceAll(name, " ", "-")
			got, err := private("connect", f.Lent, f.LentAt, f.Lent, fmt.Sprintf("GET /lent/echo/%s HTTP/1.1\r\nHost: %s\r\nTE: trailers\r\nConnection: close\r\n%s\r\n", form, f.Lent, bearer))
			if err != nil {
				return err
			}
			if farAddress(got) == "" {
				line, _, _ := strings.Cut(got, "\r\n")
				return errSaidNo(line)
			}
			for _, line := range lines(got) {
				_, back, ok := strings.Cut(line, "echo: ")
				if sum := sha256.Sum256([]byte(undo(strings.TrimSpace(back)))); ok && hex.EncodeToString(sum[:]) == f.Sum {
					return nil
				}
			}
			return errConfined
		})
	}
}

// lines are the fields, the body and the late fields of an answer.
func lines(text string) (out []string) {
	r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
	if err != nil {
		return nil
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	for _, h := range []http.Header{r.Header, r.Trailer} {
		for _, vs := range h {
			out = append(out, vs...)
		}
	}
	return append(out, strings.Split(string(body), "\n")...)
}
