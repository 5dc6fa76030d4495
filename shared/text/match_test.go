package text

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// lexemes reads a tsvector literal back.
func lexemes(literal string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(literal); {
		var word strings.Builder
		if literal[i] == '\'' {
			for i++; ; i++ {
				if literal[i] == '\'' {
					if i+1 == len(literal) || literal[i+1] != '\'' {
						i++
						break
					}
					i++
				} else if literal[i] == '\\' {
					i++
				}
				word.WriteByte(literal[i])
			}
		} else {
			for ; i < len(literal) && literal[i] != ':' && literal[i] != ' '; i++ {
				word.WriteByte(literal[i])
			}
		}
		positions, _, _ := strings.Cut(literal[i:], " ")
		m[word.String()] = strings.TrimPrefix(positions, ":")
		i += len(positions) + 1
	}
	return m
}

// matches evaluates a query as PostgreSQL does.
func matches(words map[string]string, q Query) bool {
	if q.TSQuery == "" {
		return false
	}
	has := func(lexeme string, prefix bool) bool {
		if !prefix {
			_, ok := words[lexeme]
			return ok
		}
		for w := range words {
			if strings.HasPrefix(w, lexeme) {
				return true
			}
		}
		return false
	}
	for _, c := range q.clauses {
		met := false
		for i, way := range c.any {
			all := true
			for j, lexeme := range way {
				all = all && has(lexeme, c.prefix && i == 0 && j == 0)
			}
			met = met || all
		}
		if met == c.not {
			return false
		}
	}
	return true
}

func finds(body, query string) bool {
	plain := Extract([]byte(body)).Plain
	q := ParseQuery(query)
	return matches(lexemes(Analyze(Fields{Plain: plain}).Words.String()), q) && q.MatchesPhrases(plain)
}

func readJSON(t *testing.T, name string, v any) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}
