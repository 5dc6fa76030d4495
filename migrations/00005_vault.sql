-- +goose Up

-- What came from an owner's vaults: a row for each note's file, each folder that
-- had no note of its own and got one, and each attachment.
CREATE TABLE vault_files (
    owner_id     uuid NOT NULL,
    -- the path in the vault, NFC, with '/'; a folder's ends in one
    path         text COLLATE "C" NOT NULL,
    -- the path folded, and its last part: two files that differ in neither are one
    path_key     text COLLATE "C" NOT NULL,
    name_key     text COLLATE "C" NOT NULL,
    kind         text NOT NULL,
    -- SHA-256 of the file as it was last seen; empty for a folder
    sha256       bytea NOT NULL,
    size         bigint NOT NULL,
    -- what stands before a note's text in its file, byte by byte
    head         text NOT NULL DEFAULT '',
    -- what the file's front matter last said about publishing; empty for nothing
    publish      text NOT NULL DEFAULT '',
    note_id      uuid REFERENCES notes (id) ON DELETE CASCADE,
    -- hash of what the import made of the note: another one means that it was
    -- edited here since
    note_hash    bytea,
    imported_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (owner_id, path_key),
    CONSTRAINT vault_files_kind_known CHECK (kind IN ('note', 'folder', 'asset')),
    CONSTRAINT vault_files_note CHECK ((kind = 'asset') = (note_id IS NULL) AND (note_id IS NULL) = (note_hash IS NULL))
);
CREATE UNIQUE INDEX vault_files_note_key ON vault_files (note_id) WHERE note_id IS NOT NULL;
CREATE INDEX vault_files_name_idx ON vault_files (owner_id, name_key) WHERE kind = 'asset';
