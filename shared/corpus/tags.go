package corpus

import (
	"slices"
	"strings"

	"standmeet/shared/corpus/text"
)

// tagKeys are tags as filters compare them: folded, each with the tags that it
// is nested in.
func tagKeys(tags []string) []string {
	keys := []string{}
	for _, t := range tags {
		t = text.TitleKey(t)
		for i, c := range t {
			if c == '/' && i > 0 {
				keys = append(keys, t[:i])
			}
		}
		keys = append(keys, strings.TrimSuffix(t, "/"))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
