package text

import "testing"

func TestWholeWords(t *testing.T) {
	t.Parallel()
	for q, want := range map[string]string{
		"solar wind":  ParseQuery(`solar wind ""`).TSQuery,
		"#trip":       `'#trip'`,
		"雨":           `'雨':*`,
		"雨 rain":      `'雨':* & ('rain' | 'rai')`,
		`"solar" -in`: ParseQuery(`"solar" -in`).TSQuery,
		"":            "",
	} {
		if got := ParseQuery(q).WholeWords().TSQuery; got != want {
			t.Errorf("%s: %s, want %s", q, got, want)
		}
	}
	q := ParseQuery("win")
	if q.WholeWords(); q.TSQuery != ParseQuery("win").TSQuery {
		t.Error("the query itself changed")
	}
}
