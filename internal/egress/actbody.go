package egress

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// maxCommands is the most updates of a push that are shown; the rest is counted.
const maxCommands = 200

// told looks at the beginning of a body, which may be all of it: does it do what
// its head may mean, and what should a person know of it.
func told(a Act, h *head, begin []byte, whole bool) (does bool, details []string) {
	switch a {
	case ActPush:
		if field1(h, "content-encoding", "") && !field1(h, "content-encoding", "identity") {
			return true, []string{"which refs it changes cannot be read: its body is encoded"}
		}
		updates, err := refUpdates(begin)
		if err != nil {
			return true, append(updates, "which refs it changes cannot be read to the end: "+err.Error())
		}
		return len(updates) > 0, updates
	case ActMutate:
		if !whole {
			return true, []string{"its operations are too long to be read"}
		}
		return mutates(h, begin)
	}
	return true, nil
}

// refUpdates reads the commands at the beginning of what git push sends: lines
// with their length in front, up to an empty one.
func refUpdates(b []byte) (out []string, err error) {
	more := 0
	for {
		if len(b) < 4 {
			return out, fmt.Errorf("it breaks off")
		}
		n, err := strconv.ParseUint(string(b[:4]), 16, 16)
		if err != nil || strings.Trim(string(b[:4]), "0123456789abcdefABCDEF") != "" {
			return out, fmt.Errorf("%s is no length of a line", quoted(string(b[:4])))
		}
		if n == 0 {
			if more > 0 {
				out = append(out, fmt.Sprintf("and %d more", more))
			}
			return out, nil
		}
		if n < 5 || int(n) > len(b) {
			return out, fmt.Errorf("a line breaks off")
		}
		line := string(b[4:n])
		b = b[n:]
		line, _, _ = strings.Cut(line, "\x00") // behind it stands what the client can do
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "shallow ") {
			continue
		}
		if len(out) >= maxCommands {
			more++
			continue
		}
		out = append(out, refUpdate(line))
	}
}

// refUpdate puts one command into words.
func refUpdate(line string) string {
	w := strings.SplitN(line, " ", 3)
	if len(w) != 3 || len(w[0]) != len(w[1]) || len(w[0]) < 40 || len(w[0]) > 64 || strings.Trim(w[0]+w[1], "0123456789abcdef") != "" {
		return "line " + line // of a signed push, or nothing that is known
	}
	none := strings.Repeat("0", len(w[0]))
	switch {
	case w[1] == none:
		return fmt.Sprintf("deletes %s, which is %s", w[2], w[0][:12])
	case w[0] == none:
		return fmt.Sprintf("makes %s at %s", w[2], w[1][:12])
	}
	return fmt.Sprintf("moves %s from %s to %s", w[2], w[0][:12], w[1][:12])
}

// mutates says whether some operation of GraphQL changes anything. What cannot
// be read does.
func mutates(h *head, body []byte) (bool, []string) {
	if field1(h, "content-encoding", "") && !field1(h, "content-encoding", "identity") {
		return true, []string{"its operations cannot be read: its body is encoded"}
	}
	type operation struct {
		Query         *string `json:"query"`
		OperationName string  `json:"operationName"`
	}
	var ops []operation
	if b := bytes.TrimLeft(body, " \t\r\n"); len(b) > 0 && b[0] == '[' {
		if json.Unmarshal(b, &ops) != nil || len(ops) == 0 {
			return true, []string{"its operations cannot be read"}
		}
	} else {
		var one operation
		if json.Unmarshal(b, &one) != nil {
			return true, []string{"its operations cannot be read"}
		}
		ops = []operation{one}
	}
	var names []string
	for _, o := range ops {
		switch {
		case o.Query == nil:
			return true, []string{"it names an operation that the server knows and nobody here does"}
		case strings.Contains(*o.Query, "mutation"):
			names = append(names, "operation "+o.OperationName)
		}
	}
	// Of a key that is there twice a server may take the other one, and letters can
	// be written as numbers.
	if len(names) == 0 && (bytes.Contains(body, []byte("mutation")) || bytes.Contains(body, []byte(`\u`))) {
		return true, []string{"it can be read in more than one way"}
	}
	return len(names) > 0, names
}
