-- +goose Up

-- Where an owner's job listings come from.
CREATE TABLE job_sources (
    id            uuid PRIMARY KEY,
    owner_id      uuid NOT NULL REFERENCES owners (id),
    kind          text NOT NULL,
    -- the company's name in the board's addresses; empty for feeds
    board         text NOT NULL DEFAULT '',
    -- the feed's address; empty for boards
    url           text NOT NULL DEFAULT '',
    name          text NOT NULL DEFAULT '',
    -- of the last answer that was read, as it gave them, and how many listings it had
    etag          text NOT NULL DEFAULT '',
    last_modified text NOT NULL DEFAULT '',
    last_seen     integer NOT NULL DEFAULT 0,
    fetched_at    timestamptz,
    -- why the last fetch failed, and when that was; null after one that did not
    failed_reason text,
    failed_at     timestamptz,
    created_at    timestamptz NOT NULL DEFAULT now(),
    deleted_at    timestamptz,
    CONSTRAINT job_sources_kind_known CHECK (kind IN ('greenhouse', 'lever', 'ashby', 'workable', 'smartrecruiters', 'remoteok', 'rss', 'atom', 'json_feed'))
);
CREATE UNIQUE INDEX job_sources_key ON job_sources (owner_id, kind, lower(board), url) WHERE deleted_at IS NULL;
CREATE INDEX job_sources_owner_idx ON job_sources (owner_id, created_at DESC, id DESC) WHERE deleted_at IS NULL;

-- The pool. A listing is never closed: what a source no longer gives stays.
CREATE TABLE job_listings (
    id            uuid PRIMARY KEY,
    owner_id      uuid NOT NULL,
    source_id     uuid NOT NULL REFERENCES job_sources (id),
    -- the source's own name for it, or what else tells it from the others
    external_id   text NOT NULL,
    url           text NOT NULL,
    -- the address without what changes from reader to reader, and that without its query
    canonical_url text NOT NULL,
    page          text NOT NULL,
    title         text NOT NULL,
    company       text NOT NULL,
    location      text NOT NULL,
    description   text NOT NULL,
    published_at  timestamptz,
    -- the event of the fetch that found it
    found_by      uuid NOT NULL,
    first_seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_seen_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- the listing of another source that it is the same as
    duplicate_of  uuid REFERENCES job_listings (id)
);
CREATE UNIQUE INDEX job_listings_key ON job_listings (source_id, external_id);
CREATE INDEX job_listings_owner_idx ON job_listings (owner_id, id DESC) WHERE duplicate_of IS NULL;
CREATE INDEX job_listings_url_idx ON job_listings (owner_id, canonical_url) WHERE canonical_url <> '' AND duplicate_of IS NULL;
CREATE INDEX job_listings_found_idx ON job_listings (found_by);
