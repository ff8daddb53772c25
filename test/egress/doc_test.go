//go:build linux

package egress

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var updateDocs = flag.Bool("update-docs", false, "write docs/network.md anew")

const networkDoc = "../../docs/network.md"

// roads say in words how something left.
var roads = map[string]string{"connect": "proxy, a tunnel", "http": "proxy, request by request", "direct": "caught", "": "proxy or caught"}

// networkText is the document about the programs of TestClients.
func networkText() string {
	var b strings.Builder
	b.WriteString(`# Programs and the way out

<!-- Written by test/egress out of its own list: go test ./test/egress -run NetworkDocument -update-docs -->

What was tried with a task's [way out](guide.md#the-network), on Debian 12, against servers of the same protocol. Each program was called as a person calls it, with no word about a proxy: once with the variables that a
task has, once without any of them. "Caught" is a program that knows no proxy: the name has an address inside that stands for it, and the connection comes to the gate. Both times the same rules decide, and both are on record.

| program | with the variables of a task | without them | what it needs from you |
|---|---|---|---|
`)
	for _, c := range clientList {
		without := "caught"
		if c.through == "http" {
			without = "caught, request by request"
		}
		need := needs[c.name]
		if need == "" {
			need = "nothing"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.name, roads[c.through], without, need)
	}
	b.WriteString("| Chromium, headless: pages and WebSockets, HTTP and HTTPS | proxy | caught | `--no-sandbox`, or `--grant userns` for its own sandbox |\n")
	b.WriteString(`
- The variables are ` + "`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`" + ` in both spellings and those of npm (pnpm reads them too), yarn, pip, cargo and Node. git, go, apt, wget and curl read the first four.
- Servers inside a task that listen on 127.0.0.1 are reached there: ` + "`NO_PROXY`" + ` names loopback.
- Chromium and Chrome get a policy in ` + "`/etc`" + ` that switches encrypted server names off: a greeting that hides its name does not pass, and without the policy they send a decoy of one to every server. Other browsers
  need the same by hand (Firefox: ` + "`security.tls.ech.grease_probability`" + ` 0); none of them was tried.
- Server-sent events, WebSockets, uploads in pieces, slow bodies and downloads of any length pass as they come.
`)
	return b.String()
}

// TestNetworkDocument: the document says what the tests try.
func TestNetworkDocument(t *testing.T) {
	want := networkText()
	if *updateDocs {
		if err := os.WriteFile(networkDoc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(networkDoc)
	if err != nil || string(got) != want {
		t.Error("docs/network.md is not what the tests try; look at the change, then: go test ./test/egress -run NetworkDocument -update-docs", err)
	}
}
