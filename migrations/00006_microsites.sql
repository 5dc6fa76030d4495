-- +goose Up

-- A small site that an owner builds of files and notes. A deleted one stays, without
-- its files, until its builds are forgotten.
CREATE TABLE microsites (
    id         uuid PRIMARY KEY,
    owner_id   uuid NOT NULL,
    slug       text NOT NULL,
    title      text NOT NULL DEFAULT '',
    -- rises with each change of its files
    version    bigint NOT NULL DEFAULT 1,
    -- the number of its last build
    builds     integer NOT NULL DEFAULT 0,
    -- what visitors are served; null: nothing
    live_build uuid,
    -- the builds that were live before, the last one last
    history    uuid[] NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    deleted_at timestamptz,
    CONSTRAINT microsites_slug_format CHECK (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$')
);
CREATE UNIQUE INDEX microsites_slug_key ON microsites (owner_id, slug) WHERE deleted_at IS NULL;
CREATE INDEX microsites_owner_idx ON microsites (owner_id, created_at DESC, id DESC);

-- The files of a site, also those that an unfinished build still needs: a file
-- belongs to the versions from added on, up to the one before removed.
CREATE TABLE microsite_files (
    site_id  uuid NOT NULL REFERENCES microsites (id) ON DELETE CASCADE,
    path     text COLLATE "C" NOT NULL,
    -- the path in lower case: two files that differ in case alone can't be told
    -- apart on every system
    path_key text COLLATE "C" NOT NULL,
    added    bigint NOT NULL,
    removed  bigint,
    sha256   bytea NOT NULL,
    content  bytea NOT NULL,
    PRIMARY KEY (site_id, path, added)
);
CREATE UNIQUE INDEX microsite_files_path_key ON microsite_files (site_id, path_key) WHERE removed IS NULL;
CREATE INDEX microsite_files_removed_idx ON microsite_files (site_id) WHERE removed IS NOT NULL;

-- A build of the files of one version. Its id is that of the event that asked for
-- it. Once it is settled it never changes, unless its task is retried by hand.
CREATE TABLE microsite_builds (
    id           uuid PRIMARY KEY,
    owner_id     uuid NOT NULL,
    site_id      uuid NOT NULL REFERENCES microsites (id),
    number       integer NOT NULL,
    version      bigint NOT NULL,
    state        text NOT NULL DEFAULT 'queued',
    -- what the builder has to say, errors first
    log          jsonb NOT NULL DEFAULT '[]',
    -- what came out, in files and bytes
    files        integer NOT NULL DEFAULT 0,
    bytes        bigint NOT NULL DEFAULT 0,
    -- every blob that an attempt may have put
    blobs        text[] NOT NULL DEFAULT '{}',
    -- the place among the owner's settled builds
    position     bigint,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at   timestamptz,
    -- when it last went live
    published_at timestamptz,
    CONSTRAINT microsite_builds_state_known CHECK (state IN ('queued', 'building', 'built', 'failed')),
    CONSTRAINT microsite_builds_settled_whole CHECK ((state IN ('built', 'failed')) = (settled_at IS NOT NULL) AND (settled_at IS NULL) = (position IS NULL))
);
CREATE UNIQUE INDEX microsite_builds_number_key ON microsite_builds (site_id, number);
CREATE UNIQUE INDEX microsite_builds_position_key ON microsite_builds (owner_id, position) WHERE position IS NOT NULL;
CREATE INDEX microsite_builds_open_idx ON microsite_builds (owner_id) WHERE position IS NULL;

-- What a build made: the path at which a file is served, and its blob.
CREATE TABLE microsite_outputs (
    build_id     uuid NOT NULL REFERENCES microsite_builds (id) ON DELETE CASCADE,
    path         text COLLATE "C" NOT NULL,
    blob         text NOT NULL,
    sha256       bytea NOT NULL,
    size         integer NOT NULL,
    content_type text NOT NULL,
    PRIMARY KEY (build_id, path)
);

-- How many builds of an owner have settled. Its row's lock makes them settle one
-- after the other, so that a position is visible before the next one exists.
CREATE TABLE microsite_positions (
    owner_id uuid PRIMARY KEY,
    position bigint NOT NULL
);

-- +goose StatementBegin
-- Ends a build, once, and records that. The caller has the owner's waiters woken.
CREATE FUNCTION microsite_settle(build uuid, ended text, said jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    b microsite_builds;
    place bigint;
BEGIN
    SELECT * INTO b FROM microsite_builds WHERE id = build AND state IN ('queued', 'building') FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO microsite_positions AS p (owner_id, position) VALUES (b.owner_id, 1)
    ON CONFLICT (owner_id) DO UPDATE SET position = p.position + 1 RETURNING position INTO place;
    UPDATE microsite_builds SET state = ended, log = said, position = place, settled_at = clock_timestamp() WHERE id = build;
    PERFORM record_event('microsite.build.settled', b.owner_id, b.id::text, jsonb_build_object(
        'build_id', b.id, 'site_id', b.site_id, 'slug', (SELECT slug FROM microsites WHERE id = b.site_id), 'number', b.number, 'status', ended, 'position', place));
    RETURN true;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- A build whose task ends without it is settled too, and one whose task is retried
-- by hand waits again, for the files as they are then.
CREATE FUNCTION microsite_build_follows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state = 'pending' THEN
        UPDATE microsite_builds SET state = 'queued', log = '[]', position = NULL, settled_at = NULL,
            version = (SELECT s.version FROM microsites s WHERE s.id = site_id)
        WHERE id = NEW.event_id AND state = 'failed';
    ELSE
        PERFORM microsite_settle(NEW.event_id, 'failed', jsonb_build_array(jsonb_build_object('severity', 'error', 'text',
            CASE NEW.state WHEN 'cancelled' THEN 'The build was cancelled.' ELSE 'The build could not be carried out. Its task says why.' END)));
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER microsite_build_follows AFTER UPDATE OF state ON tasks FOR EACH ROW
    WHEN (NEW.subscriber = 'microsite.build' AND OLD.state IS DISTINCT FROM NEW.state AND NEW.state IN ('pending', 'discarded', 'cancelled'))
    EXECUTE FUNCTION microsite_build_follows();
