// Package migrations holds the numbered SQL that makes the schema. River's own
// tables come from River's migrator and are there before the first file runs.
package migrations

import "embed"

// FS holds the migration files at its root.
//
//go:embed *.sql
var FS embed.FS
