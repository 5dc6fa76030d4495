-- +goose Up

-- One GiST index holds the owner next to the time: no two bookings of an owner overlap.
CREATE EXTENSION IF NOT EXISTS btree_gist;

-- argon2id, encoded as PHC has it; null: the owner signs in by link alone.
ALTER TABLE owners ADD COLUMN password_hash text;
-- sign-in by address
CREATE INDEX owners_email_idx ON owners (lower(email));
-- A fresh session that a link began may set a password without knowing the old one.
ALTER TABLE sessions ADD COLUMN by_link boolean NOT NULL DEFAULT false;

-- How much of a limit is used up: the theoretical arrival time of GCRA. Losing
-- it in a crash only lets people try again.
CREATE UNLOGGED TABLE rate_limits (
    bucket text NOT NULL,
    key    text NOT NULL,
    tat    timestamptz NOT NULL,
    PRIMARY KEY (bucket, key)
);
CREATE INDEX rate_limits_tat_idx ON rate_limits (tat);

-- A code is derived from its id and a key that is not in the database; only
-- its SHA-256 is kept.
CREATE TABLE codes (
    id            uuid PRIMARY KEY,
    owner_id      uuid NOT NULL,
    label         text NOT NULL DEFAULT '',
    code_hash     bytea NOT NULL,
    -- its last four characters, by which the owner tells one from another
    hint          text NOT NULL,
    -- null: no limit
    member_limit  integer,
    booking_quota integer,
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz,
    revoked_at    timestamptz
);
CREATE UNIQUE INDEX codes_hash_key ON codes (code_hash);
CREATE INDEX codes_owner_idx ON codes (owner_id, created_at DESC, id DESC);

-- mail_state says for good what became of the latest approval mail: tasks are
-- forgotten after 30 days, requests are not.
CREATE TABLE access_requests (
    id          uuid PRIMARY KEY,
    owner_id    uuid NOT NULL,
    name        text NOT NULL,
    org         text NOT NULL DEFAULT '',
    email       text NOT NULL,
    message     text NOT NULL DEFAULT '',
    state       text NOT NULL DEFAULT 'open',
    code_id     uuid REFERENCES codes (id),
    mail_event  uuid,
    mail_state  text,
    created_at  timestamptz NOT NULL DEFAULT now(),
    approved_at timestamptz,
    replied_at  timestamptz,
    closed_at   timestamptz,
    CONSTRAINT access_requests_state_known CHECK (state IN ('open', 'approved', 'replied', 'closed')),
    CONSTRAINT access_requests_mail_state_known CHECK (mail_state IN ('sending', 'sent', 'failed')),
    CONSTRAINT access_requests_approved_has_code CHECK (state NOT IN ('approved', 'replied') OR (code_id IS NOT NULL AND approved_at IS NOT NULL)),
    CONSTRAINT access_requests_replied_was_sent CHECK ((state = 'replied') <= (replied_at IS NOT NULL))
);
CREATE INDEX access_requests_owner_idx ON access_requests (owner_id, created_at DESC, id DESC);
CREATE UNIQUE INDEX access_requests_code_key ON access_requests (code_id) WHERE code_id IS NOT NULL;

-- A visitor's session holds every code that was redeemed in it.
CREATE TABLE visitor_sessions (
    id_hash    bytea PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX visitor_sessions_expires_idx ON visitor_sessions (expires_at);
CREATE TABLE visitor_grants (
    session_hash bytea NOT NULL REFERENCES visitor_sessions (id_hash) ON DELETE CASCADE,
    code_id      uuid NOT NULL REFERENCES codes (id),
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (session_hash, code_id)
);
CREATE INDEX visitor_grants_code_idx ON visitor_grants (code_id);

-- When an owner can be booked. weekly is a list of 7 lists of
-- {"from": "09:00", "to": "17:00"}, Monday first, in time_zone.
CREATE TABLE availability (
    owner_id      uuid PRIMARY KEY REFERENCES owners (id),
    time_zone     text NOT NULL,
    weekly        jsonb NOT NULL,
    slot_minutes  integer NOT NULL,
    buffer_minutes integer NOT NULL,
    lead_minutes  integer NOT NULL,
    horizon_days  integer NOT NULL,
    -- the longest booking that a visitor may ask for
    max_duration_min integer NOT NULL DEFAULT 480,
    -- visitors book with an access code alone
    requires_code boolean NOT NULL DEFAULT false,
    updated_at    timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE bookings (
    id           uuid PRIMARY KEY,
    owner_id     uuid NOT NULL,
    code_id      uuid REFERENCES codes (id),
    starts_at    timestamptz NOT NULL,
    ends_at      timestamptz NOT NULL,
    -- from the start to the end and the buffer after it
    busy         tstzrange NOT NULL,
    -- the owner's time zone when it was booked or moved
    time_zone    text NOT NULL,
    -- the visitor's, if they said so
    visitor_zone text,
    name         text NOT NULL,
    email        text NOT NULL,
    topic        text NOT NULL DEFAULT '',
    state        text NOT NULL DEFAULT 'confirmed',
    -- iCalendar's SEQUENCE: rises with each change that is mailed
    sequence     integer NOT NULL DEFAULT 0,
    -- of the token by which the visitor manages it
    token_hash   bytea NOT NULL,
    -- the latest mail to the visitor, and what became of it
    mail_event   uuid NOT NULL,
    mail_state   text NOT NULL DEFAULT 'sending',
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    cancelled_at timestamptz,
    cancelled_by text,
    CONSTRAINT bookings_state_known CHECK (state IN ('confirmed', 'cancelled')),
    CONSTRAINT bookings_mail_state_known CHECK (mail_state IN ('sending', 'sent', 'failed')),
    CONSTRAINT bookings_cancelled_by_known CHECK (cancelled_by IN ('owner', 'visitor')),
    CONSTRAINT bookings_cancelled_whole CHECK ((state = 'cancelled') = (cancelled_at IS NOT NULL AND cancelled_by IS NOT NULL)),
    CONSTRAINT bookings_time_forward CHECK (starts_at < ends_at),
    CONSTRAINT bookings_no_overlap EXCLUDE USING gist (owner_id WITH =, busy WITH &&) WHERE (state = 'confirmed')
);
CREATE INDEX bookings_owner_idx ON bookings (owner_id, starts_at, id);
CREATE INDEX bookings_code_idx ON bookings (code_id) WHERE code_id IS NOT NULL;

-- The secret address by which a calendar app subscribes; only its hash is kept.
CREATE TABLE calendar_feeds (
    owner_id   uuid PRIMARY KEY REFERENCES owners (id),
    token_hash bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX calendar_feeds_token_key ON calendar_feeds (token_hash);

-- Mails that were handed over or are about to be, for the caps on each recipient
-- and owner. A task has one row however often it is tried.
CREATE TABLE mail_turns (
    event_id   uuid NOT NULL,
    subscriber text NOT NULL,
    owner_id   uuid NOT NULL,
    recipient  text NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (event_id, subscriber)
);
CREATE INDEX mail_turns_recipient_idx ON mail_turns (recipient, at);
CREATE INDEX mail_turns_owner_idx ON mail_turns (owner_id, subscriber, at);
CREATE INDEX mail_turns_at_idx ON mail_turns (at);

-- +goose StatementBegin
-- Carries the state of a mail's task to the row that the mail is about, in the
-- transaction that changes the task: whoever changes it, the row never says
-- something else, and a request is replied only where its mail is recorded as
-- sent.
CREATE FUNCTION mail_state_follows() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    mail text := CASE NEW.state WHEN 'completed' THEN 'sent' WHEN 'pending' THEN 'sending' WHEN 'running' THEN 'sending' ELSE 'failed' END;
BEGIN
    IF NEW.subscriber = 'access_request.approval_mail' THEN
        UPDATE access_requests SET mail_state = mail WHERE id = NEW.subject::uuid AND mail_event = NEW.event_id AND mail_state IS DISTINCT FROM mail;
        IF NEW.state = 'completed' THEN
            UPDATE access_requests
            SET state = CASE state WHEN 'approved' THEN 'replied' ELSE state END, replied_at = coalesce(replied_at, clock_timestamp())
            WHERE id = NEW.subject::uuid;
        END IF;
    ELSE
        UPDATE bookings SET mail_state = mail WHERE id = NEW.subject::uuid AND mail_event = NEW.event_id AND mail_state IS DISTINCT FROM mail;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER mail_state_follows AFTER UPDATE OF state ON tasks FOR EACH ROW
    WHEN (NEW.subscriber IN ('access_request.approval_mail', 'booking.mail') AND OLD.state IS DISTINCT FROM NEW.state)
    EXECUTE FUNCTION mail_state_follows();
