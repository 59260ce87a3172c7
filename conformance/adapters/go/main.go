// An adapter of the conformance protocol over nats-server's own NewSubjectTransform: what a transform is by itself,
// without the checks of the place where a server uses it.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"os"
	"unicode/utf8"

	"github.com/nats-io/nats-server/v2/server"
)

// raw is bytes that are a text in JSON, or {"base64": …} where they are no UTF-8.
type raw []byte

func (r *raw) UnmarshalJSON(given []byte) error {
	var text string
	if json.Unmarshal(given, &text) == nil {
		*r = raw(text)
		return nil
	}
	var encoded struct{ Base64 []byte }
	err := json.Unmarshal(given, &encoded)
	*r = encoded.Base64
	return err
}

func (r raw) MarshalJSON() ([]byte, error) {
	if utf8.Valid(r) {
		return json.Marshal(string(r))
	}
	return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString(r)})
}

type request struct {
	ID       int    `json:"id"`
	Op       string `json:"op"`
	Src      raw    `json:"src"`
	Dest     raw    `json:"dest"`
	Subjects []raw  `json:"subjects"`
}

func transformed(asked request) map[string]any {
	transform, err := server.NewSubjectTransform(string(asked.Src), string(asked.Dest))
	if err != nil {
		return map[string]any{"refused": map[string]string{}}
	}
	results := make([]*raw, len(asked.Subjects))
	for at, subject := range asked.Subjects {
		if transform == nil { // an empty destination is no transform
			continue
		}
		if result, err := transform.Match(string(subject)); err == nil {
			made := raw(result)
			results[at] = &made
		}
	}
	return map[string]any{"results": results}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked request
		answer := map[string]any{}
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			answer["error"] = err.Error()
		} else if asked.Op == "hello" {
			answer = map[string]any{
				"protocol": 1, "name": "NewSubjectTransform", "version": server.VERSION,
				"dialects": []string{server.VERSION}, "capabilities": []string{"bare_transform"},
			}
		} else if asked.Op == "bare_transform" {
			answer = transformed(asked)
		}
		answer["id"] = asked.ID
		if out.Encode(answer) != nil || asked.Op == "bye" {
			return
		}
	}
}
