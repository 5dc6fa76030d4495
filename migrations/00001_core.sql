-- +goose Up

-- Trigram similarity answers typos; btree_gin lets one GIN index hold the owner
-- next to the words, so that no owner's search reads another owner's postings.
CREATE EXTENSION IF NOT EXISTS pg_trgm;
CREATE EXTENSION IF NOT EXISTS btree_gin;

-- River's indexes for searching jobs by their arguments and metadata. Nothing
-- here does, River itself does so only when its users ask, and each job would
-- write to both of them three times.
DROP INDEX IF EXISTS river_job_args_index;
DROP INDEX IF EXISTS river_job_metadata_index;

CREATE TABLE owners (
    id         uuid PRIMARY KEY,
    handle     text NOT NULL,
    name       text NOT NULL DEFAULT '',
    email      text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT owners_handle_format CHECK (handle ~ '^[a-z0-9][a-z0-9-]{0,62}$')
);
CREATE UNIQUE INDEX owners_handle_key ON owners (handle);

-- A token is shown once; only its SHA-256 is kept.
CREATE TABLE tokens (
    id           uuid PRIMARY KEY,
    owner_id     uuid NOT NULL REFERENCES owners (id),
    name         text NOT NULL,
    token_hash   bytea NOT NULL,
    scopes       text[] NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz
);
CREATE UNIQUE INDEX tokens_hash_key ON tokens (token_hash);
CREATE INDEX tokens_owner_idx ON tokens (owner_id, created_at DESC);

CREATE TABLE sessions (
    id_hash    bytea PRIMARY KEY,
    owner_id   uuid NOT NULL REFERENCES owners (id),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);

-- One-time links that sign an owner in (the one that `make run` prints).
CREATE TABLE sign_in_links (
    token_hash bytea PRIMARY KEY,
    owner_id   uuid NOT NULL REFERENCES owners (id),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    used_at    timestamptz
);

-- What a write answered, committed with the write itself, so that a repeated
-- request is answered and not done again. scope is the operation and the
-- resource that it names.
CREATE TABLE idempotency_keys (
    owner_id    uuid NOT NULL,
    scope       text NOT NULL,
    key         text NOT NULL,
    fingerprint bytea NOT NULL,
    committed   json,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (owner_id, scope, key)
);
CREATE INDEX idempotency_keys_created_idx ON idempotency_keys (created_at);

-- notes, events and tasks carry no foreign key to owners: every insert would
-- lock the owner's row in share mode, and 64 writers of one owner then queue on
-- its multixact. Owners are never deleted while they have rows here.
CREATE TABLE notes (
    id             uuid PRIMARY KEY,
    owner_id       uuid NOT NULL,
    genre          text NOT NULL,
    title          text,
    -- title folded for comparison: NFC, lower case, single spaces
    title_key      text,
    slug           text,
    -- slugs from the root to this note, joined by '/': null for raw notes.
    -- Collated by bytes, so that a subtree is a range of notes_path_key.
    path           text COLLATE "C",
    parent_id      uuid REFERENCES notes (id),
    body           text NOT NULL,
    tags           text[] NOT NULL DEFAULT '{}',
    -- the tags folded, each with what it is nested in: 'a' and 'a/b' for 'A/b'
    tag_keys       text[] NOT NULL DEFAULT '{}',
    aliases        text[] NOT NULL DEFAULT '{}',
    visibility     text NOT NULL DEFAULT 'private',
    show_as_source boolean NOT NULL DEFAULT false,
    source         text,
    promoted_from  uuid REFERENCES notes (id),
    promoted_to    uuid REFERENCES notes (id),
    version        bigint NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    deleted_at     timestamptz,
    -- the note whose deletion took this one with it: itself or an ancestor
    deleted_with   uuid,
    CONSTRAINT notes_genre_known CHECK (genre IN ('raw', 'wiki', 'output')),
    CONSTRAINT notes_visibility_known CHECK (visibility IN ('private', 'coded', 'public')),
    CONSTRAINT notes_raw_has_no_place CHECK (genre <> 'raw' OR (parent_id IS NULL AND slug IS NULL AND path IS NULL)),
    CONSTRAINT notes_place_complete CHECK (genre = 'raw' OR (title IS NOT NULL AND title_key IS NOT NULL AND slug IS NOT NULL AND path IS NOT NULL))
);
CREATE UNIQUE INDEX notes_sibling_title_key ON notes (owner_id, genre, coalesce(parent_id, '00000000-0000-0000-0000-000000000000'), title_key)
    WHERE deleted_at IS NULL AND genre <> 'raw';
-- a path names one living note; it implies that siblings' slugs differ
CREATE UNIQUE INDEX notes_path_key ON notes (owner_id, genre, path)
    WHERE deleted_at IS NULL AND genre <> 'raw';
CREATE INDEX notes_parent_idx ON notes (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX notes_owner_updated_idx ON notes (owner_id, updated_at DESC, id DESC);
CREATE INDEX notes_trash_idx ON notes (owner_id, deleted_at DESC, id DESC) WHERE deleted_at IS NOT NULL;

-- The outbox. Rows are never changed; event_queue says what is still to fan out.
CREATE TABLE events (
    id          uuid PRIMARY KEY,
    type        text NOT NULL,
    owner_id    uuid NOT NULL,
    subject     text NOT NULL,
    data        jsonb NOT NULL,
    -- W3C trace context of the request that caused it
    trace       text,
    occurred_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX events_owner_idx ON events (owner_id, id DESC);
CREATE INDEX events_subject_idx ON events (subject, id DESC);

-- A row for each event that no relay has fanned out yet. A table of its own,
-- because deleting a row touches no index of events, and because the queue
-- stays small enough to be vacuumed every few seconds.
CREATE TABLE event_queue (
    event_id    uuid PRIMARY KEY,
    attempts    smallint NOT NULL DEFAULT 0,
    due_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_error  text,
    -- set aside after repeated failure; events.requeue clears it
    poisoned_at timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- One row for each (event, subscriber), written when the event is fanned out.
-- It is the truth about a receipt; River's rows are how the work gets done.
CREATE TABLE tasks (
    event_id    uuid NOT NULL,
    subscriber  text NOT NULL,
    owner_id    uuid NOT NULL,
    subject     text NOT NULL,
    state       text NOT NULL DEFAULT 'pending',
    -- the River job that covers this task; null until it is enqueued (again)
    job_id      bigint,
    -- null for a task that its owner cancelled before the relay came by
    fanned_at   timestamptz DEFAULT clock_timestamp(),
    started_at  timestamptz,
    finished_at timestamptz,
    attempts    smallint NOT NULL DEFAULT 0,
    errors      jsonb,
    cancel_requested_at timestamptz,
    progress    jsonb,
    result      jsonb,
    PRIMARY KEY (event_id, subscriber),
    CONSTRAINT tasks_state_known CHECK (state IN ('pending', 'running', 'completed', 'discarded', 'cancelled'))
);
CREATE INDEX tasks_job_idx ON tasks (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX tasks_owner_idx ON tasks (owner_id, event_id DESC);
CREATE INDEX tasks_failed_idx ON tasks (owner_id, finished_at) WHERE state = 'discarded';

-- What corpus.index knows of a note. Only ever replaced by a newer version;
-- a deleted note leaves its version behind (deleted), so that a late job of an
-- older version cannot bring it back.
CREATE TABLE note_search (
    note_id  uuid PRIMARY KEY,
    owner_id uuid NOT NULL,
    version  bigint NOT NULL,
    deleted  boolean NOT NULL DEFAULT false,
    -- some of its words are not in words: they were too many
    truncated boolean NOT NULL DEFAULT false,
    lang     text NOT NULL DEFAULT '',
    -- rises with each write: the newest rows are searched first
    turn     bigint NOT NULL,
    words    tsvector NOT NULL DEFAULT '',
    -- the words of title, aliases and tags alone
    head     tsvector NOT NULL DEFAULT '',
    -- exact things to find it by: g:genre, v:visibility (of this version), t:tag,
    -- n:name (title, alias, slug, path; folded), p11:span, p16:span and p21:span,
    -- where a span is as many bits of turns
    keys     text[] NOT NULL DEFAULT '{}',
    -- folded targets of its links, and */ with the last part of those with a '/'
    links    text[] NOT NULL DEFAULT '{}',
    -- plain text of the note: snippets and exact phrases are read from it
    plain    text NOT NULL DEFAULT ''
);
CREATE SEQUENCE note_search_turn;
CREATE INDEX note_search_find_idx ON note_search USING gin (owner_id, words, head, keys, links);
ALTER TABLE note_search ALTER COLUMN plain SET STORAGE EXTERNAL;

-- Every word an owner's notes ever held, so that a misspelt one finds its like.
CREATE TABLE search_terms (
    owner_id uuid NOT NULL,
    term     text NOT NULL,
    PRIMARY KEY (owner_id, term)
);
CREATE INDEX search_terms_like_idx ON search_terms USING gin (owner_id, term gin_trgm_ops);

CREATE TABLE periodic_runs (
    name        text PRIMARY KEY,
    started_at  timestamptz NOT NULL,
    finished_at timestamptz,
    error       text,
    note        text
);

-- +goose StatementBegin
-- A UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, then random bits.
CREATE FUNCTION uuid_v7() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                    PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                    FROM 1 FOR 6),
            52, 1), 53, 1), 'hex')::uuid
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Records an event and queues it. The caller may name the event's id for the
-- first one of its transaction (standmeet.event_id), so that it can register
-- for the receipt before the commit.
CREATE FUNCTION record_event(type text, owner_id uuid, subject text, data jsonb) RETURNS uuid
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    event_id uuid := nullif(current_setting('standmeet.event_id', true), '')::uuid;
BEGIN
    IF event_id IS NULL THEN
        event_id := uuid_v7();
    ELSE
        PERFORM set_config('standmeet.event_id', '', true);
    END IF;
    INSERT INTO events (id, type, owner_id, subject, data, trace)
    VALUES (event_id, type, owner_id, subject, data, nullif(current_setting('standmeet.trace', true), ''));
    INSERT INTO event_queue (event_id) VALUES (event_id);
    RETURN event_id;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION notes_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.version := OLD.version + 1;
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION notes_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    n notes := coalesce(NEW, OLD);
BEGIN
    PERFORM record_event('corpus.note.changed', n.owner_id, n.id::text, jsonb_build_object(
        'note_id', n.id,
        'genre', n.genre,
        'version', n.version,
        'visibility', n.visibility,
        'was_visibility', CASE WHEN TG_OP = 'INSERT' THEN NULL ELSE OLD.visibility END,
        'change', CASE
            WHEN TG_OP = 'INSERT' THEN 'created'
            WHEN TG_OP = 'DELETE' THEN 'erased'
            WHEN OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL THEN 'deleted'
            WHEN OLD.deleted_at IS NOT NULL AND NEW.deleted_at IS NULL THEN 'restored'
            ELSE 'updated'
        END));
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER notes_touch BEFORE UPDATE ON notes FOR EACH ROW
    WHEN ((OLD.genre, OLD.title, OLD.path, OLD.parent_id, OLD.body, OLD.tags, OLD.aliases, OLD.visibility, OLD.show_as_source, OLD.source, OLD.promoted_to, OLD.deleted_at)
        IS DISTINCT FROM
          (NEW.genre, NEW.title, NEW.path, NEW.parent_id, NEW.body, NEW.tags, NEW.aliases, NEW.visibility, NEW.show_as_source, NEW.source, NEW.promoted_to, NEW.deleted_at))
    EXECUTE FUNCTION notes_touch();

CREATE TRIGGER notes_changed AFTER UPDATE ON notes FOR EACH ROW
    WHEN (OLD.version IS DISTINCT FROM NEW.version)
    EXECUTE FUNCTION notes_changed();

CREATE TRIGGER notes_created_or_erased AFTER INSERT OR DELETE ON notes FOR EACH ROW
    EXECUTE FUNCTION notes_changed();

-- +goose StatementBegin
-- Keeps our task rows in step with everything that River ends by itself:
-- discards, cancels, rescues. The worker's own transaction has usually recorded
-- the end already; then this finds nothing to do. Only that transaction says
-- "completed": when River calls a job done whose task is still open, the work was
-- not done, because its owner cancelled it or something went wrong.
CREATE FUNCTION tasks_follow_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tasks
    SET state = CASE
            WHEN NEW.state <> 'completed' THEN NEW.state::text
            WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
            ELSE 'discarded' END,
        finished_at = clock_timestamp(),
        started_at = coalesce(started_at, NEW.attempted_at),
        attempts = NEW.attempt,
        errors = coalesce(to_jsonb(NEW.errors), errors)
    WHERE job_id = NEW.id AND state IN ('pending', 'running');
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER tasks_follow_job AFTER UPDATE OF state ON river_job FOR EACH ROW
    WHEN (NEW.state IN ('completed', 'discarded', 'cancelled') AND OLD.state IS DISTINCT FROM NEW.state)
    EXECUTE FUNCTION tasks_follow_job();

-- +goose StatementBegin
CREATE FUNCTION tasks_follow_job_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tasks
    SET state = 'cancelled',
        finished_at = clock_timestamp(),
        attempts = OLD.attempt,
        errors = coalesce(to_jsonb(OLD.errors), errors)
    WHERE job_id = OLD.id AND state IN ('pending', 'running');
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER tasks_follow_job_deletion AFTER DELETE ON river_job FOR EACH ROW
    WHEN (OLD.state NOT IN ('completed', 'discarded', 'cancelled'))
    EXECUTE FUNCTION tasks_follow_job_deletion();
