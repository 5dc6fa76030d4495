-- extensions
btree_gin
btree_gist
pg_trgm

-- columns
access_requests.id uuid not null
access_requests.owner_id uuid not null
access_requests.name text not null
access_requests.org text not null default ''::text
access_requests.email text not null
access_requests.message text not null default ''::text
access_requests.state text not null default 'open'::text
access_requests.code_id uuid
access_requests.mail_event uuid
access_requests.mail_state text
access_requests.created_at timestamp with time zone not null default now()
access_requests.approved_at timestamp with time zone
access_requests.replied_at timestamp with time zone
access_requests.closed_at timestamp with time zone
availability.owner_id uuid not null
availability.time_zone text not null
availability.weekly jsonb not null
availability.slot_minutes integer not null
availability.buffer_minutes integer not null
availability.lead_minutes integer not null
availability.horizon_days integer not null
availability.max_duration_min integer not null default 480
availability.requires_code boolean not null default false
availability.updated_at timestamp with time zone not null default now()
bookings.id uuid not null
bookings.owner_id uuid not null
bookings.code_id uuid
bookings.starts_at timestamp with time zone not null
bookings.ends_at timestamp with time zone not null
bookings.busy tstzrange not null
bookings.time_zone text not null
bookings.visitor_zone text
bookings.name text not null
bookings.email text not null
bookings.topic text not null default ''::text
bookings.state text not null default 'confirmed'::text
bookings.sequence integer not null default 0
bookings.token_hash bytea not null
bookings.mail_event uuid not null
bookings.mail_state text not null default 'sending'::text
bookings.created_at timestamp with time zone not null default now()
bookings.updated_at timestamp with time zone not null default now()
bookings.cancelled_at timestamp with time zone
bookings.cancelled_by text
calendar_feeds.owner_id uuid not null
calendar_feeds.token_hash bytea not null
calendar_feeds.created_at timestamp with time zone not null default now()
codes.id uuid not null
codes.owner_id uuid not null
codes.label text not null default ''::text
codes.code_hash bytea not null
codes.hint text not null
codes.member_limit integer
codes.booking_quota integer
codes.created_at timestamp with time zone not null default now()
codes.expires_at timestamp with time zone
codes.revoked_at timestamp with time zone
event_queue.event_id uuid not null
event_queue.attempts smallint not null default 0
event_queue.due_at timestamp with time zone not null default clock_timestamp()
event_queue.last_error text
event_queue.poisoned_at timestamp with time zone
events.id uuid not null
events.type text not null
events.owner_id uuid not null
events.subject text not null
events.data jsonb not null
events.trace text
events.occurred_at timestamp with time zone not null default clock_timestamp()
idempotency_keys.owner_id uuid not null
idempotency_keys.scope text not null
idempotency_keys.key text not null
idempotency_keys.fingerprint bytea not null
idempotency_keys.committed json
idempotency_keys.created_at timestamp with time zone not null default now()
job_listings.id uuid not null
job_listings.owner_id uuid not null
job_listings.source_id uuid not null
job_listings.external_id text not null
job_listings.url text not null
job_listings.canonical_url text not null
job_listings.page text not null
job_listings.title text not null
job_listings.company text not null
job_listings.location text not null
job_listings.description text not null
job_listings.published_at timestamp with time zone
job_listings.found_by uuid not null
job_listings.first_seen_at timestamp with time zone not null default clock_timestamp()
job_listings.last_seen_at timestamp with time zone not null default clock_timestamp()
job_listings.duplicate_of uuid
job_sources.id uuid not null
job_sources.owner_id uuid not null
job_sources.kind text not null
job_sources.board text not null default ''::text
job_sources.url text not null default ''::text
job_sources.name text not null default ''::text
job_sources.etag text not null default ''::text
job_sources.last_modified text not null default ''::text
job_sources.last_seen integer not null default 0
job_sources.fetched_at timestamp with time zone
job_sources.failed_reason text
job_sources.failed_at timestamp with time zone
job_sources.created_at timestamp with time zone not null default now()
job_sources.deleted_at timestamp with time zone
mail_turns.event_id uuid not null
mail_turns.subscriber text not null
mail_turns.owner_id uuid not null
mail_turns.recipient text not null
mail_turns.at timestamp with time zone not null default clock_timestamp()
microsite_builds.id uuid not null
microsite_builds.owner_id uuid not null
microsite_builds.site_id uuid not null
microsite_builds.number integer not null
microsite_builds.version bigint not null
microsite_builds.state text not null default 'queued'::text
microsite_builds.log jsonb not null default '[]'::jsonb
microsite_builds.files integer not null default 0
microsite_builds.bytes bigint not null default 0
microsite_builds.blobs text[] not null default '{}'::text[]
microsite_builds.position bigint
microsite_builds.requested_at timestamp with time zone not null default clock_timestamp()
microsite_builds.settled_at timestamp with time zone
microsite_builds.published_at timestamp with time zone
microsite_files.site_id uuid not null
microsite_files.path text not null
microsite_files.path_key text not null
microsite_files.added bigint not null
microsite_files.removed bigint
microsite_files.sha256 bytea not null
microsite_files.content bytea not null
microsite_outputs.build_id uuid not null
microsite_outputs.path text not null
microsite_outputs.blob text not null
microsite_outputs.sha256 bytea not null
microsite_outputs.size integer not null
microsite_outputs.content_type text not null
microsite_positions.owner_id uuid not null
microsite_positions.position bigint not null
microsites.id uuid not null
microsites.owner_id uuid not null
microsites.slug text not null
microsites.title text not null default ''::text
microsites.version bigint not null default 1
microsites.builds integer not null default 0
microsites.live_build uuid
microsites.history uuid[] not null default '{}'::uuid[]
microsites.created_at timestamp with time zone not null default now()
microsites.updated_at timestamp with time zone not null default now()
microsites.deleted_at timestamp with time zone
note_search.note_id uuid not null
note_search.owner_id uuid not null
note_search.version bigint not null
note_search.deleted boolean not null default false
note_search.truncated boolean not null default false
note_search.lang text not null default ''::text
note_search.turn bigint not null
note_search.words tsvector not null default ''::tsvector
note_search.head tsvector not null default ''::tsvector
note_search.keys text[] not null default '{}'::text[]
note_search.links text[] not null default '{}'::text[]
note_search.plain text not null default ''::text
notes.id uuid not null
notes.owner_id uuid not null
notes.genre text not null
notes.title text
notes.title_key text
notes.slug text
notes.path text
notes.parent_id uuid
notes.body text not null
notes.tags text[] not null default '{}'::text[]
notes.tag_keys text[] not null default '{}'::text[]
notes.aliases text[] not null default '{}'::text[]
notes.visibility text not null default 'private'::text
notes.show_as_source boolean not null default false
notes.source text
notes.promoted_from uuid
notes.promoted_to uuid
notes.version bigint not null default 1
notes.created_at timestamp with time zone not null default now()
notes.updated_at timestamp with time zone not null default now()
notes.deleted_at timestamp with time zone
notes.deleted_with uuid
owners.id uuid not null
owners.handle text not null
owners.name text not null default ''::text
owners.email text not null
owners.created_at timestamp with time zone not null default now()
owners.password_hash text
periodic_runs.name text not null
periodic_runs.started_at timestamp with time zone not null
periodic_runs.finished_at timestamp with time zone
periodic_runs.error text
periodic_runs.note text
rate_limits.bucket text not null
rate_limits.key text not null
rate_limits.tat timestamp with time zone not null
river_job.id bigint not null default nextval('river_job_id_seq'::regclass)
river_job.state river_job_state not null default 'available'::river_job_state
river_job.attempt smallint not null default 0
river_job.max_attempts smallint not null default 25
river_job.attempted_at timestamp with time zone
river_job.created_at timestamp with time zone not null default now()
river_job.finalized_at timestamp with time zone
river_job.scheduled_at timestamp with time zone not null default now()
river_job.priority smallint not null default 1
river_job.args jsonb not null
river_job.attempted_by text[]
river_job.errors jsonb[]
river_job.kind text not null
river_job.metadata jsonb not null default '{}'::jsonb
river_job.queue text not null default 'default'::text
river_job.tags character varying(255)[] not null default '{}'::character varying[]
river_job.unique_key bytea
river_job.unique_states bit(8)
river_leader.elected_at timestamp with time zone not null
river_leader.expires_at timestamp with time zone not null
river_leader.leader_id text not null
river_leader.name text not null default 'default'::text
river_migration.line text not null
river_migration.version bigint not null
river_migration.created_at timestamp with time zone not null default now()
river_notification.id bigint not null default nextval('river_notification_id_seq'::regclass)
river_notification.created_at timestamp with time zone not null default now()
river_notification.payload text not null
river_notification.topic text not null
river_queue.name text not null
river_queue.created_at timestamp with time zone not null default now()
river_queue.metadata jsonb not null default '{}'::jsonb
river_queue.paused_at timestamp with time zone
river_queue.updated_at timestamp with time zone not null default CURRENT_TIMESTAMP
search_terms.owner_id uuid not null
search_terms.term text not null
sessions.id_hash bytea not null
sessions.owner_id uuid not null
sessions.created_at timestamp with time zone not null default now()
sessions.expires_at timestamp with time zone not null
sessions.by_link boolean not null default false
sign_in_links.token_hash bytea not null
sign_in_links.owner_id uuid not null
sign_in_links.created_at timestamp with time zone not null default now()
sign_in_links.expires_at timestamp with time zone not null
sign_in_links.used_at timestamp with time zone
tasks.event_id uuid not null
tasks.subscriber text not null
tasks.owner_id uuid not null
tasks.subject text not null
tasks.state text not null default 'pending'::text
tasks.job_id bigint
tasks.fanned_at timestamp with time zone default clock_timestamp()
tasks.started_at timestamp with time zone
tasks.finished_at timestamp with time zone
tasks.attempts smallint not null default 0
tasks.errors jsonb
tasks.cancel_requested_at timestamp with time zone
tasks.progress jsonb
tasks.result jsonb
tasks.next_at timestamp with time zone
tasks.busy_until timestamp with time zone
tokens.id uuid not null
tokens.owner_id uuid not null
tokens.name text not null
tokens.token_hash bytea not null
tokens.scopes text[] not null
tokens.created_at timestamp with time zone not null default now()
tokens.expires_at timestamp with time zone
tokens.last_used_at timestamp with time zone
tokens.revoked_at timestamp with time zone
vault_files.owner_id uuid not null
vault_files.path text not null
vault_files.path_key text not null
vault_files.name_key text not null
vault_files.kind text not null
vault_files.sha256 bytea not null
vault_files.size bigint not null
vault_files.head text not null default ''::text
vault_files.publish text not null default ''::text
vault_files.note_id uuid
vault_files.note_hash bytea
vault_files.imported_at timestamp with time zone not null default now()
visitor_grants.session_hash bytea not null
visitor_grants.code_id uuid not null
visitor_grants.created_at timestamp with time zone not null default now()
visitor_sessions.id_hash bytea not null
visitor_sessions.created_at timestamp with time zone not null default now()
visitor_sessions.expires_at timestamp with time zone not null
webhook_attempts.id uuid not null
webhook_attempts.delivery_id uuid not null
webhook_attempts.number integer not null
webhook_attempts.at timestamp with time zone not null default clock_timestamp()
webhook_attempts.until timestamp with time zone not null
webhook_attempts.finished_at timestamp with time zone
webhook_attempts.duration_ms integer
webhook_attempts.status integer
webhook_attempts.outcome text
webhook_attempts.response text
webhook_attempts.error text
webhook_deliveries.id uuid not null
webhook_deliveries.owner_id uuid not null
webhook_deliveries.endpoint_id uuid not null
webhook_deliveries.event_id uuid not null
webhook_deliveries.event_type text not null
webhook_deliveries.payload text not null
webhook_deliveries.state text not null default 'pending'::text
webhook_deliveries.task_event uuid
webhook_deliveries.due_at timestamp with time zone not null default clock_timestamp()
webhook_deliveries.asked boolean not null default false
webhook_deliveries.attempts integer not null default 0
webhook_deliveries.spent integer not null default 0
webhook_deliveries.repeats uuid
webhook_deliveries.repeated_at timestamp with time zone
webhook_deliveries.created_at timestamp with time zone not null default clock_timestamp()
webhook_deliveries.finished_at timestamp with time zone
webhook_endpoints.id uuid not null
webhook_endpoints.owner_id uuid not null
webhook_endpoints.url text not null
webhook_endpoints.event_types text[] not null
webhook_endpoints.description text not null default ''::text
webhook_endpoints.ordered boolean not null default false
webhook_endpoints.secret bytea
webhook_endpoints.old_secret bytea
webhook_endpoints.old_secret_until timestamp with time zone
webhook_endpoints.disabled_at timestamp with time zone
webhook_endpoints.disabled_reason text
webhook_endpoints.failing_since timestamp with time zone
webhook_endpoints.consecutive_failures integer not null default 0
webhook_endpoints.cooldown_until timestamp with time zone
webhook_endpoints.lease_holder uuid
webhook_endpoints.lease_until timestamp with time zone
webhook_endpoints.created_at timestamp with time zone not null default now()
webhook_endpoints.updated_at timestamp with time zone not null default now()
webhook_endpoints.deleted_at timestamp with time zone

-- indexes
CREATE INDEX access_requests_owner_idx ON public.access_requests USING btree (owner_id, created_at DESC, id DESC)
CREATE INDEX bookings_code_idx ON public.bookings USING btree (code_id) WHERE (code_id IS NOT NULL)
CREATE INDEX bookings_no_overlap ON public.bookings USING gist (owner_id, busy) WHERE (state = 'confirmed'::text)
CREATE INDEX bookings_owner_idx ON public.bookings USING btree (owner_id, starts_at, id)
CREATE INDEX codes_owner_idx ON public.codes USING btree (owner_id, created_at DESC, id DESC)
CREATE INDEX events_owner_idx ON public.events USING btree (owner_id, id DESC)
CREATE INDEX events_subject_idx ON public.events USING btree (subject, id DESC)
CREATE INDEX idempotency_keys_created_idx ON public.idempotency_keys USING btree (created_at)
CREATE INDEX job_listings_found_idx ON public.job_listings USING btree (found_by)
CREATE INDEX job_listings_owner_idx ON public.job_listings USING btree (owner_id, id DESC) WHERE (duplicate_of IS NULL)
CREATE INDEX job_listings_url_idx ON public.job_listings USING btree (owner_id, canonical_url) WHERE ((canonical_url <> ''::text) AND (duplicate_of IS NULL))
CREATE INDEX job_sources_owner_idx ON public.job_sources USING btree (owner_id, created_at DESC, id DESC) WHERE (deleted_at IS NULL)
CREATE INDEX mail_turns_at_idx ON public.mail_turns USING btree (at)
CREATE INDEX mail_turns_owner_idx ON public.mail_turns USING btree (owner_id, subscriber, at)
CREATE INDEX mail_turns_recipient_idx ON public.mail_turns USING btree (recipient, at)
CREATE INDEX microsite_builds_open_idx ON public.microsite_builds USING btree (owner_id) WHERE ("position" IS NULL)
CREATE INDEX microsite_files_removed_idx ON public.microsite_files USING btree (site_id) WHERE (removed IS NOT NULL)
CREATE INDEX microsites_owner_idx ON public.microsites USING btree (owner_id, created_at DESC, id DESC)
CREATE INDEX note_search_find_idx ON public.note_search USING gin (owner_id, words, head, keys, links)
CREATE INDEX notes_owner_updated_idx ON public.notes USING btree (owner_id, updated_at DESC, id DESC)
CREATE INDEX notes_parent_idx ON public.notes USING btree (parent_id) WHERE (parent_id IS NOT NULL)
CREATE INDEX notes_trash_idx ON public.notes USING btree (owner_id, deleted_at DESC, id DESC) WHERE (deleted_at IS NOT NULL)
CREATE INDEX owners_email_idx ON public.owners USING btree (lower(email))
CREATE INDEX rate_limits_tat_idx ON public.rate_limits USING btree (tat)
CREATE INDEX river_job_kind ON public.river_job USING btree (kind)
CREATE INDEX river_job_prioritized_fetching_index ON public.river_job USING btree (state, queue, priority, scheduled_at, id)
CREATE INDEX river_job_state_and_finalized_at_index ON public.river_job USING btree (state, finalized_at) WHERE (finalized_at IS NOT NULL)
CREATE INDEX river_notification_created_at_idx ON public.river_notification USING btree (created_at)
CREATE INDEX river_notification_topic_id_idx ON public.river_notification USING btree (topic, id)
CREATE INDEX search_terms_like_idx ON public.search_terms USING gin (owner_id, term gin_trgm_ops)
CREATE INDEX tasks_failed_idx ON public.tasks USING btree (owner_id, finished_at) WHERE (state = 'discarded'::text)
CREATE INDEX tasks_job_idx ON public.tasks USING btree (job_id) WHERE (job_id IS NOT NULL)
CREATE INDEX tasks_owner_idx ON public.tasks USING btree (owner_id, event_id DESC)
CREATE INDEX tokens_owner_idx ON public.tokens USING btree (owner_id, created_at DESC)
CREATE INDEX vault_files_name_idx ON public.vault_files USING btree (owner_id, name_key) WHERE (kind = 'asset'::text)
CREATE INDEX visitor_grants_code_idx ON public.visitor_grants USING btree (code_id)
CREATE INDEX visitor_sessions_expires_idx ON public.visitor_sessions USING btree (expires_at)
CREATE INDEX webhook_attempts_delivery_idx ON public.webhook_attempts USING btree (delivery_id, number)
CREATE INDEX webhook_deliveries_due_idx ON public.webhook_deliveries USING btree (endpoint_id, due_at, id) WHERE (state = 'pending'::text)
CREATE INDEX webhook_deliveries_endpoint_idx ON public.webhook_deliveries USING btree (endpoint_id, id DESC)
CREATE INDEX webhook_deliveries_order_idx ON public.webhook_deliveries USING btree (endpoint_id, event_id, id) WHERE (state = 'pending'::text)
CREATE INDEX webhook_endpoints_owner_idx ON public.webhook_endpoints USING btree (owner_id, created_at DESC, id DESC)
CREATE UNIQUE INDEX access_requests_code_key ON public.access_requests USING btree (code_id) WHERE (code_id IS NOT NULL)
CREATE UNIQUE INDEX access_requests_pkey ON public.access_requests USING btree (id)
CREATE UNIQUE INDEX availability_pkey ON public.availability USING btree (owner_id)
CREATE UNIQUE INDEX bookings_pkey ON public.bookings USING btree (id)
CREATE UNIQUE INDEX calendar_feeds_pkey ON public.calendar_feeds USING btree (owner_id)
CREATE UNIQUE INDEX calendar_feeds_token_key ON public.calendar_feeds USING btree (token_hash)
CREATE UNIQUE INDEX codes_hash_key ON public.codes USING btree (code_hash)
CREATE UNIQUE INDEX codes_pkey ON public.codes USING btree (id)
CREATE UNIQUE INDEX event_queue_pkey ON public.event_queue USING btree (event_id)
CREATE UNIQUE INDEX events_pkey ON public.events USING btree (id)
CREATE UNIQUE INDEX idempotency_keys_pkey ON public.idempotency_keys USING btree (owner_id, scope, key)
CREATE UNIQUE INDEX job_listings_key ON public.job_listings USING btree (source_id, external_id)
CREATE UNIQUE INDEX job_listings_pkey ON public.job_listings USING btree (id)
CREATE UNIQUE INDEX job_sources_key ON public.job_sources USING btree (owner_id, kind, lower(board), url) WHERE (deleted_at IS NULL)
CREATE UNIQUE INDEX job_sources_pkey ON public.job_sources USING btree (id)
CREATE UNIQUE INDEX mail_turns_pkey ON public.mail_turns USING btree (event_id, subscriber)
CREATE UNIQUE INDEX microsite_builds_number_key ON public.microsite_builds USING btree (site_id, number)
CREATE UNIQUE INDEX microsite_builds_pkey ON public.microsite_builds USING btree (id)
CREATE UNIQUE INDEX microsite_builds_position_key ON public.microsite_builds USING btree (owner_id, "position") WHERE ("position" IS NOT NULL)
CREATE UNIQUE INDEX microsite_files_path_key ON public.microsite_files USING btree (site_id, path_key) WHERE (removed IS NULL)
CREATE UNIQUE INDEX microsite_files_pkey ON public.microsite_files USING btree (site_id, path, added)
CREATE UNIQUE INDEX microsite_outputs_pkey ON public.microsite_outputs USING btree (build_id, path)
CREATE UNIQUE INDEX microsite_positions_pkey ON public.microsite_positions USING btree (owner_id)
CREATE UNIQUE INDEX microsites_pkey ON public.microsites USING btree (id)
CREATE UNIQUE INDEX microsites_slug_key ON public.microsites USING btree (owner_id, slug) WHERE (deleted_at IS NULL)
CREATE UNIQUE INDEX note_search_pkey ON public.note_search USING btree (note_id)
CREATE UNIQUE INDEX notes_path_key ON public.notes USING btree (owner_id, genre, path) WHERE ((deleted_at IS NULL) AND (genre <> 'raw'::text))
CREATE UNIQUE INDEX notes_pkey ON public.notes USING btree (id)
CREATE UNIQUE INDEX notes_sibling_title_key ON public.notes USING btree (owner_id, genre, COALESCE(parent_id, '00000000-0000-0000-0000-000000000000'::uuid), title_key) WHERE ((deleted_at IS NULL) AND (genre <> 'raw'::text))
CREATE UNIQUE INDEX owners_handle_key ON public.owners USING btree (handle)
CREATE UNIQUE INDEX owners_pkey ON public.owners USING btree (id)
CREATE UNIQUE INDEX periodic_runs_pkey ON public.periodic_runs USING btree (name)
CREATE UNIQUE INDEX rate_limits_pkey ON public.rate_limits USING btree (bucket, key)
CREATE UNIQUE INDEX river_job_pkey ON public.river_job USING btree (id)
CREATE UNIQUE INDEX river_job_unique_idx ON public.river_job USING btree (unique_key) WHERE ((unique_key IS NOT NULL) AND (unique_states IS NOT NULL) AND river_job_state_in_bitmask(unique_states, state))
CREATE UNIQUE INDEX river_leader_pkey ON public.river_leader USING btree (name)
CREATE UNIQUE INDEX river_migration_pkey1 ON public.river_migration USING btree (line, version)
CREATE UNIQUE INDEX river_notification_pkey ON public.river_notification USING btree (id)
CREATE UNIQUE INDEX river_queue_pkey ON public.river_queue USING btree (name)
CREATE UNIQUE INDEX search_terms_pkey ON public.search_terms USING btree (owner_id, term)
CREATE UNIQUE INDEX sessions_pkey ON public.sessions USING btree (id_hash)
CREATE UNIQUE INDEX sign_in_links_pkey ON public.sign_in_links USING btree (token_hash)
CREATE UNIQUE INDEX tasks_pkey ON public.tasks USING btree (event_id, subscriber)
CREATE UNIQUE INDEX tokens_hash_key ON public.tokens USING btree (token_hash)
CREATE UNIQUE INDEX tokens_pkey ON public.tokens USING btree (id)
CREATE UNIQUE INDEX vault_files_note_key ON public.vault_files USING btree (note_id) WHERE (note_id IS NOT NULL)
CREATE UNIQUE INDEX vault_files_pkey ON public.vault_files USING btree (owner_id, path_key)
CREATE UNIQUE INDEX visitor_grants_pkey ON public.visitor_grants USING btree (session_hash, code_id)
CREATE UNIQUE INDEX visitor_sessions_pkey ON public.visitor_sessions USING btree (id_hash)
CREATE UNIQUE INDEX webhook_attempts_pkey ON public.webhook_attempts USING btree (id)
CREATE UNIQUE INDEX webhook_deliveries_pkey ON public.webhook_deliveries USING btree (id)
CREATE UNIQUE INDEX webhook_deliveries_task_key ON public.webhook_deliveries USING btree (task_event) WHERE (task_event IS NOT NULL)
CREATE UNIQUE INDEX webhook_endpoints_pkey ON public.webhook_endpoints USING btree (id)

-- constraints
access_requests access_requests_approved_has_code: CHECK (((state <> ALL (ARRAY['approved'::text, 'replied'::text])) OR ((code_id IS NOT NULL) AND (approved_at IS NOT NULL))))
access_requests access_requests_code_id_fkey: FOREIGN KEY (code_id) REFERENCES codes(id)
access_requests access_requests_mail_state_known: CHECK ((mail_state = ANY (ARRAY['sending'::text, 'sent'::text, 'failed'::text])))
access_requests access_requests_pkey: PRIMARY KEY (id)
access_requests access_requests_replied_was_sent: CHECK (((state = 'replied'::text) <= (replied_at IS NOT NULL)))
access_requests access_requests_state_known: CHECK ((state = ANY (ARRAY['open'::text, 'approved'::text, 'replied'::text, 'closed'::text])))
availability availability_owner_id_fkey: FOREIGN KEY (owner_id) REFERENCES owners(id)
availability availability_pkey: PRIMARY KEY (owner_id)
bookings bookings_cancelled_by_known: CHECK ((cancelled_by = ANY (ARRAY['owner'::text, 'visitor'::text])))
bookings bookings_cancelled_whole: CHECK (((state = 'cancelled'::text) = ((cancelled_at IS NOT NULL) AND (cancelled_by IS NOT NULL))))
bookings bookings_code_id_fkey: FOREIGN KEY (code_id) REFERENCES codes(id)
bookings bookings_mail_state_known: CHECK ((mail_state = ANY (ARRAY['sending'::text, 'sent'::text, 'failed'::text])))
bookings bookings_no_overlap: EXCLUDE USING gist (owner_id WITH =, busy WITH &&) WHERE ((state = 'confirmed'::text))
bookings bookings_pkey: PRIMARY KEY (id)
bookings bookings_state_known: CHECK ((state = ANY (ARRAY['confirmed'::text, 'cancelled'::text])))
bookings bookings_time_forward: CHECK ((starts_at < ends_at))
calendar_feeds calendar_feeds_owner_id_fkey: FOREIGN KEY (owner_id) REFERENCES owners(id)
calendar_feeds calendar_feeds_pkey: PRIMARY KEY (owner_id)
codes codes_pkey: PRIMARY KEY (id)
event_queue event_queue_pkey: PRIMARY KEY (event_id)
events events_pkey: PRIMARY KEY (id)
idempotency_keys idempotency_keys_pkey: PRIMARY KEY (owner_id, scope, key)
job_listings job_listings_duplicate_of_fkey: FOREIGN KEY (duplicate_of) REFERENCES job_listings(id)
job_listings job_listings_pkey: PRIMARY KEY (id)
job_listings job_listings_source_id_fkey: FOREIGN KEY (source_id) REFERENCES job_sources(id)
job_sources job_sources_kind_known: CHECK ((kind = ANY (ARRAY['greenhouse'::text, 'lever'::text, 'ashby'::text, 'workable'::text, 'smartrecruiters'::text, 'remoteok'::text, 'rss'::text, 'atom'::text, 'json_feed'::text])))
job_sources job_sources_owner_id_fkey: FOREIGN KEY (owner_id) REFERENCES owners(id)
job_sources job_sources_pkey: PRIMARY KEY (id)
mail_turns mail_turns_pkey: PRIMARY KEY (event_id, subscriber)
microsite_builds microsite_builds_pkey: PRIMARY KEY (id)
microsite_builds microsite_builds_settled_whole: CHECK ((((state = ANY (ARRAY['built'::text, 'failed'::text])) = (settled_at IS NOT NULL)) AND ((settled_at IS NULL) = ("position" IS NULL))))
microsite_builds microsite_builds_site_id_fkey: FOREIGN KEY (site_id) REFERENCES microsites(id)
microsite_builds microsite_builds_state_known: CHECK ((state = ANY (ARRAY['queued'::text, 'building'::text, 'built'::text, 'failed'::text])))
microsite_files microsite_files_pkey: PRIMARY KEY (site_id, path, added)
microsite_files microsite_files_site_id_fkey: FOREIGN KEY (site_id) REFERENCES microsites(id) ON DELETE CASCADE
microsite_outputs microsite_outputs_build_id_fkey: FOREIGN KEY (build_id) REFERENCES microsite_builds(id) ON DELETE CASCADE
microsite_outputs microsite_outputs_pkey: PRIMARY KEY (build_id, path)
microsite_positions microsite_positions_pkey: PRIMARY KEY (owner_id)
microsites microsites_pkey: PRIMARY KEY (id)
microsites microsites_slug_format: CHECK ((slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'::text))
note_search note_search_pkey: PRIMARY KEY (note_id)
notes notes_genre_known: CHECK ((genre = ANY (ARRAY['raw'::text, 'wiki'::text, 'output'::text])))
notes notes_parent_id_fkey: FOREIGN KEY (parent_id) REFERENCES notes(id)
notes notes_pkey: PRIMARY KEY (id)
notes notes_place_complete: CHECK (((genre = 'raw'::text) OR ((title IS NOT NULL) AND (title_key IS NOT NULL) AND (slug IS NOT NULL) AND (path IS NOT NULL))))
notes notes_promoted_from_fkey: FOREIGN KEY (promoted_from) REFERENCES notes(id)
notes notes_promoted_to_fkey: FOREIGN KEY (promoted_to) REFERENCES notes(id)
notes notes_raw_has_no_place: CHECK (((genre <> 'raw'::text) OR ((parent_id IS NULL) AND (slug IS NULL) AND (path IS NULL))))
notes notes_visibility_known: CHECK ((visibility = ANY (ARRAY['private'::text, 'coded'::text, 'public'::text])))
owners owners_handle_format: CHECK ((handle ~ '^[a-z0-9][a-z0-9-]{0,62}$'::text))
owners owners_pkey: PRIMARY KEY (id)
periodic_runs periodic_runs_pkey: PRIMARY KEY (name)
rate_limits rate_limits_pkey: PRIMARY KEY (bucket, key)
river_job finalized_or_finalized_at_null: CHECK ((((finalized_at IS NULL) AND (state <> ALL (ARRAY['cancelled'::river_job_state, 'completed'::river_job_state, 'discarded'::river_job_state]))) OR ((finalized_at IS NOT NULL) AND (state = ANY (ARRAY['cancelled'::river_job_state, 'completed'::river_job_state, 'discarded'::river_job_state])))))
river_job kind_length: CHECK (((char_length(kind) > 0) AND (char_length(kind) < 128)))
river_job max_attempts_is_positive: CHECK ((max_attempts > 0))
river_job priority_in_range: CHECK (((priority >= 1) AND (priority <= 4)))
river_job queue_length: CHECK (((char_length(queue) > 0) AND (char_length(queue) < 128)))
river_job river_job_pkey: PRIMARY KEY (id)
river_leader leader_id_length: CHECK (((char_length(leader_id) > 0) AND (char_length(leader_id) < 128)))
river_leader name_length: CHECK ((name = 'default'::text))
river_leader river_leader_pkey: PRIMARY KEY (name)
river_migration line_length: CHECK (((char_length(line) > 0) AND (char_length(line) < 128)))
river_migration river_migration_pkey1: PRIMARY KEY (line, version)
river_migration version_gte_1: CHECK ((version >= 1))
river_notification river_notification_pkey: PRIMARY KEY (id)
river_notification topic_length: CHECK (((length(topic) > 0) AND (length(topic) < 128)))
river_queue river_queue_pkey: PRIMARY KEY (name)
search_terms search_terms_pkey: PRIMARY KEY (owner_id, term)
sessions sessions_owner_id_fkey: FOREIGN KEY (owner_id) REFERENCES owners(id)
sessions sessions_pkey: PRIMARY KEY (id_hash)
sign_in_links sign_in_links_owner_id_fkey: FOREIGN KEY (owner_id) REFERENCES owners(id)
sign_in_links sign_in_links_pkey: PRIMARY KEY (token_hash)
tasks tasks_pkey: PRIMARY KEY (event_id, subscriber)
tasks tasks_state_known: CHECK ((state = ANY (ARRAY['pending'::text, 'running'::text, 'completed'::text, 'discarded'::text, 'cancelled'::text])))
tokens tokens_owner_id_fkey: FOREIGN KEY (owner_id) REFERENCES owners(id)
tokens tokens_pkey: PRIMARY KEY (id)
vault_files vault_files_kind_known: CHECK ((kind = ANY (ARRAY['note'::text, 'folder'::text, 'asset'::text])))
vault_files vault_files_note: CHECK ((((kind = 'asset'::text) = (note_id IS NULL)) AND ((note_id IS NULL) = (note_hash IS NULL))))
vault_files vault_files_note_id_fkey: FOREIGN KEY (note_id) REFERENCES notes(id) ON DELETE CASCADE
vault_files vault_files_pkey: PRIMARY KEY (owner_id, path_key)
visitor_grants visitor_grants_code_id_fkey: FOREIGN KEY (code_id) REFERENCES codes(id)
visitor_grants visitor_grants_pkey: PRIMARY KEY (session_hash, code_id)
visitor_grants visitor_grants_session_hash_fkey: FOREIGN KEY (session_hash) REFERENCES visitor_sessions(id_hash) ON DELETE CASCADE
visitor_sessions visitor_sessions_pkey: PRIMARY KEY (id_hash)
webhook_attempts webhook_attempts_pkey: PRIMARY KEY (id)
webhook_deliveries webhook_deliveries_pending_has_task: CHECK (((state <> 'pending'::text) OR (task_event IS NOT NULL)))
webhook_deliveries webhook_deliveries_pkey: PRIMARY KEY (id)
webhook_deliveries webhook_deliveries_state_known: CHECK ((state = ANY (ARRAY['pending'::text, 'delivered'::text, 'discarded'::text, 'held'::text, 'cancelled'::text])))
webhook_endpoints webhook_endpoints_disabled_whole: CHECK (((disabled_at IS NULL) = (disabled_reason IS NULL)))
webhook_endpoints webhook_endpoints_pkey: PRIMARY KEY (id)
webhook_endpoints webhook_endpoints_secret_kept: CHECK (((secret IS NOT NULL) OR (deleted_at IS NOT NULL)))

-- settings
event_queue: autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0
tasks: fillfactor=85
webhook_attempts: fillfactor=80
webhook_deliveries: fillfactor=80
webhook_endpoints: fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000

-- triggers
CREATE TRIGGER mail_state_follows AFTER UPDATE OF state ON public.tasks FOR EACH ROW WHEN (((new.subscriber = ANY (ARRAY['access_request.approval_mail'::text, 'booking.mail'::text])) AND (old.state IS DISTINCT FROM new.state))) EXECUTE FUNCTION mail_state_follows()
CREATE TRIGGER microsite_build_follows AFTER UPDATE OF state ON public.tasks FOR EACH ROW WHEN (((new.subscriber = 'microsite.build'::text) AND (old.state IS DISTINCT FROM new.state) AND (new.state = ANY (ARRAY['pending'::text, 'discarded'::text, 'cancelled'::text])))) EXECUTE FUNCTION microsite_build_follows()
CREATE TRIGGER notes_changed AFTER UPDATE ON public.notes FOR EACH ROW WHEN ((old.version IS DISTINCT FROM new.version)) EXECUTE FUNCTION notes_changed()
CREATE TRIGGER notes_created_or_erased AFTER INSERT OR DELETE ON public.notes FOR EACH ROW EXECUTE FUNCTION notes_changed()
CREATE TRIGGER notes_touch BEFORE UPDATE ON public.notes FOR EACH ROW WHEN (((((((((((((old.genre IS DISTINCT FROM new.genre) OR (old.title IS DISTINCT FROM new.title)) OR (old.path IS DISTINCT FROM new.path)) OR (old.parent_id IS DISTINCT FROM new.parent_id)) OR (old.body IS DISTINCT FROM new.body)) OR (old.tags IS DISTINCT FROM new.tags)) OR (old.aliases IS DISTINCT FROM new.aliases)) OR (old.visibility IS DISTINCT FROM new.visibility)) OR (old.show_as_source IS DISTINCT FROM new.show_as_source)) OR (old.source IS DISTINCT FROM new.source)) OR (old.promoted_to IS DISTINCT FROM new.promoted_to)) OR (old.deleted_at IS DISTINCT FROM new.deleted_at))) EXECUTE FUNCTION notes_touch()
CREATE TRIGGER tasks_follow_job AFTER UPDATE OF state ON public.river_job FOR EACH ROW WHEN (((new.state = ANY (ARRAY['completed'::river_job_state, 'discarded'::river_job_state, 'cancelled'::river_job_state])) AND (old.state IS DISTINCT FROM new.state))) EXECUTE FUNCTION tasks_follow_job()
CREATE TRIGGER tasks_follow_job_deletion AFTER DELETE ON public.river_job FOR EACH ROW WHEN ((old.state <> ALL (ARRAY['completed'::river_job_state, 'discarded'::river_job_state, 'cancelled'::river_job_state]))) EXECUTE FUNCTION tasks_follow_job_deletion()
CREATE TRIGGER webhook_state_follows AFTER UPDATE OF state ON public.tasks FOR EACH ROW WHEN (((new.subscriber = 'webhook.deliver'::text) AND ((old.state IS DISTINCT FROM new.state) OR ((new.state = 'pending'::text) AND (new.cancel_requested_at IS NULL))))) EXECUTE FUNCTION webhook_state_follows()

-- functions
CREATE OR REPLACE FUNCTION public.mail_state_follows()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
$function$

CREATE OR REPLACE FUNCTION public.microsite_build_follows()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
$function$

CREATE OR REPLACE FUNCTION public.microsite_settle(build uuid, ended text, said jsonb)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
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
$function$

CREATE OR REPLACE FUNCTION public.notes_changed()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
$function$

CREATE OR REPLACE FUNCTION public.notes_touch()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    NEW.version := OLD.version + 1;
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END
$function$

CREATE OR REPLACE FUNCTION public.record_event(type text, owner_id uuid, subject text, data jsonb)
 RETURNS uuid
 LANGUAGE plpgsql
AS $function$
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
$function$

CREATE OR REPLACE FUNCTION public.river_job_state_in_bitmask(bitmask bit, state river_job_state)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE
AS $function$
    SELECT CASE state
        WHEN 'available' THEN get_bit(bitmask, 7)
        WHEN 'cancelled' THEN get_bit(bitmask, 6)
        WHEN 'completed' THEN get_bit(bitmask, 5)
        WHEN 'discarded' THEN get_bit(bitmask, 4)
        WHEN 'pending'   THEN get_bit(bitmask, 3)
        WHEN 'retryable' THEN get_bit(bitmask, 2)
        WHEN 'running'   THEN get_bit(bitmask, 1)
        WHEN 'scheduled' THEN get_bit(bitmask, 0)
        ELSE 0
    END = 1;
$function$

CREATE OR REPLACE FUNCTION public.tasks_follow_job()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
$function$

CREATE OR REPLACE FUNCTION public.tasks_follow_job_deletion()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    UPDATE tasks
    SET state = 'cancelled',
        finished_at = clock_timestamp(),
        attempts = OLD.attempt,
        errors = coalesce(to_jsonb(OLD.errors), errors)
    WHERE job_id = OLD.id AND state IN ('pending', 'running');
    RETURN NULL;
END
$function$

CREATE OR REPLACE FUNCTION public.uuid_v7()
 RETURNS uuid
 LANGUAGE sql
AS $function$
    SELECT encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                    PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                    FROM 1 FOR 6),
            52, 1), 53, 1), 'hex')::uuid
$function$

CREATE OR REPLACE FUNCTION public.webhook_state_follows()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
$function$


