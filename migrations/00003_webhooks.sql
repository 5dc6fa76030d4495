-- +goose Up

-- Where an owner wants events sent. A deleted one stays until its deliveries are
-- forgotten, without its secrets.
CREATE TABLE webhook_endpoints (
    id                   uuid PRIMARY KEY,
    owner_id             uuid NOT NULL,
    url                  text NOT NULL,
    -- globs over the names of exposed event types
    event_types          text[] NOT NULL,
    description          text NOT NULL DEFAULT '',
    -- strictly in event order, each only after the one before it
    ordered              boolean NOT NULL DEFAULT false,
    -- sealed; null once deleted
    secret               bytea,
    old_secret           bytea,
    -- until when the old secret signs too
    old_secret_until     timestamptz,
    disabled_at          timestamptz,
    disabled_reason      text,
    -- the first failure since the last success
    failing_since        timestamptz,
    consecutive_failures integer NOT NULL DEFAULT 0,
    -- no attempt before it, except what the owner asks for
    cooldown_until       timestamptz,
    -- who may make an attempt now: at most one is in flight
    lease_holder         uuid,
    lease_until          timestamptz,
    created_at           timestamptz NOT NULL DEFAULT now(),
    updated_at           timestamptz NOT NULL DEFAULT now(),
    deleted_at           timestamptz,
    CONSTRAINT webhook_endpoints_disabled_whole CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL)),
    CONSTRAINT webhook_endpoints_secret_kept CHECK (secret IS NOT NULL OR deleted_at IS NOT NULL)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX webhook_endpoints_owner_idx ON webhook_endpoints (owner_id, created_at DESC, id DESC);

-- An event on its way to an endpoint, written where the event is fanned out. No
-- foreign keys: each insert would lock the endpoint's row against its lease.
CREATE TABLE webhook_deliveries (
    id            uuid PRIMARY KEY,
    owner_id      uuid NOT NULL,
    endpoint_id   uuid NOT NULL,
    -- the event that it tells of, and the webhook-id that the receiver sees
    event_id      uuid NOT NULL,
    event_type    text NOT NULL,
    -- the very bytes that are sent on each attempt: the event is forgotten earlier
    payload       text NOT NULL,
    state         text NOT NULL DEFAULT 'pending',
    -- the event whose task carries this out; null while held
    task_event    uuid,
    -- no attempt before it
    due_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- its owner asked for the next attempt: it doesn't wait for a cool-down
    asked         boolean NOT NULL DEFAULT false,
    -- attempts made, and those that count towards giving up
    attempts      integer NOT NULL DEFAULT 0,
    spent         integer NOT NULL DEFAULT 0,
    -- the delivery that this one repeats
    repeats       uuid,
    repeated_at   timestamptz,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at   timestamptz,
    CONSTRAINT webhook_deliveries_state_known CHECK (state IN ('pending', 'delivered', 'discarded', 'held', 'cancelled')),
    CONSTRAINT webhook_deliveries_pending_has_task CHECK (state <> 'pending' OR task_event IS NOT NULL)
) WITH (fillfactor = 80);
CREATE INDEX webhook_deliveries_endpoint_idx ON webhook_deliveries (endpoint_id, id DESC);
CREATE UNIQUE INDEX webhook_deliveries_task_key ON webhook_deliveries (task_event) WHERE task_event IS NOT NULL;
CREATE INDEX webhook_deliveries_due_idx ON webhook_deliveries (endpoint_id, due_at, id) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_order_idx ON webhook_deliveries (endpoint_id, event_id, id) WHERE state = 'pending';

-- A row for each attempt, written before the request is sent. One that has no
-- outcome when its time is up was interrupted: nobody knows what it reached.
CREATE TABLE webhook_attempts (
    id          uuid PRIMARY KEY,
    delivery_id uuid NOT NULL,
    number      integer NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    until       timestamptz NOT NULL,
    finished_at timestamptz,
    duration_ms integer,
    -- null: there was no answer
    status      integer,
    outcome     text,
    -- the first 4 KiB of the answer
    response    text,
    error       text
) WITH (fillfactor = 80);
CREATE INDEX webhook_attempts_delivery_idx ON webhook_attempts (delivery_id, number);

-- For kinds whose tasks don't follow their job: when the next attempt is due, and
-- until when one is under way. Room on the page keeps an attempt's beginning out
-- of the indexes.
ALTER TABLE tasks ADD COLUMN next_at timestamptz, ADD COLUMN busy_until timestamptz;
ALTER TABLE tasks SET (fillfactor = 85);

-- +goose StatementBegin
-- Carries the state of a delivery's task to the delivery, in the transaction that
-- changes the task, whoever changes it. A task that is retried by hand, which sets
-- it to pending, is due at once, and starts over if it had ended.
CREATE FUNCTION webhook_state_follows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE webhook_deliveries
    SET state = CASE NEW.state WHEN 'completed' THEN 'delivered' ELSE NEW.state END,
        finished_at = NEW.finished_at,
        asked = NEW.state = 'pending',
        due_at = CASE NEW.state WHEN 'pending' THEN clock_timestamp() ELSE due_at END,
        spent = CASE WHEN NEW.state = 'pending' AND state <> 'pending' THEN 0 ELSE spent END
    WHERE task_event = NEW.event_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER webhook_state_follows AFTER UPDATE OF state ON tasks FOR EACH ROW
    WHEN (NEW.subscriber = 'webhook.deliver' AND (OLD.state IS DISTINCT FROM NEW.state OR (NEW.state = 'pending' AND NEW.cancel_requested_at IS NULL)))
    EXECUTE FUNCTION webhook_state_follows();
