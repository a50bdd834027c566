-- name: claim
select {schema}.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: heartbeat
-- The clock is read when the row is had: a statement that waited for it looks at the row, and computes, once more.
update {schema}.runs set expires_at = {now_ms} + lease_ms
where namespace = $1 and job = $2 and slot = $3 and token = $4 and status = 'open'
returning true

-- name: finish
update {schema}.runs set status = case status when 'open' then $5 else status end
where namespace = $1 and job = $2 and slot = $3 and token = $4 and status in ('open', 'success', 'failed')
returning true

-- name: release
with released as (
    update {schema}.runs set
        used = used - (status = 'open')::integer,
        expires_at = case status when 'open' then least(expires_at, {now_ms}) else expires_at end,
        status = 'released'
    where namespace = $1 and job = $2 and slot = $3 and token = $4 and status in ('open', 'released')
    returning job
)
select pg_notify($5, job) from released

-- name: active
-- One row at least, for the clock.
select clock.now_ms, run.job, run.slot, run.attempt, run.fence, run.holder, run.started_at, run.expires_at, run.status
from (select {now_ms} as now_ms) as clock left join (
    select runs.* from (select distinct value as job from jsonb_array_elements_text($2::jsonb)) as asked
    join {schema}.jobs on jobs.namespace = $1 and jobs.job = asked.job
    join {schema}.runs on runs.namespace = $1 and runs.job = jobs.job
        and runs.slot = any (jobs.unfinished) and runs.status in ('open', 'released')
) as run on true
order by run.job, run.slot

-- name: save_result
-- Records beyond those kept are never shown; they are removed now and then, which is asked for by $12.
with removed as (
    delete from {schema}.results where $12::boolean and ctid = any (array(
        select ctid from {schema}.results
        where namespace = $1 and job = $2 and (slot, attempt) <= (
            select slot, attempt from {schema}.results where namespace = $1 and job = $2
            order by slot desc, attempt desc limit 1 offset $13
        )
        for update skip locked
    ))
)
insert into {schema}.results as known values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
on conflict (namespace, job, slot, attempt) do update set
    fence = excluded.fence,
    status = excluded.status,
    instance = excluded.instance,
    started_at = excluded.started_at,
    ended_at = excluded.ended_at,
    error = excluded.error
where $11::boolean

-- name: results
select slot, attempt, fence, status, instance, started_at, ended_at, error from {schema}.results
where namespace = $1 and job = $2
order by slot desc, attempt desc limit $3

-- name: save_cards
-- In one order, so that of two who save the same cards one waits for the other, and no more.
insert into {schema}.cards
select $1, told.card->>'job', told.card->>'card', (told.card->>'seen_at')::bigint
from json_array_elements($2::json) as told (card) order by 2
on conflict (namespace, job) do update set card = excluded.card, seen_at = excluded.seen_at

-- name: forget_cards
delete from {schema}.cards where namespace = $1 and seen_at < {now_ms} - $2::bigint

-- name: cards
select card from {schema}.cards where namespace = $1 order by job

-- name: examine
-- $1 is the schema's name.
select
    current_setting('server_version'),
    current_setting('synchronous_commit'),
    current_setting('fsync'),
    current_setting('max_connections'),
    (
        select string_agg(action || ' on ' || name, ', ')
        from unnest(array['jobs', 'runs', 'results', 'cards']) as name
        cross join unnest(array['select', 'insert', 'update', 'delete']) as action
        where not has_table_privilege(format('%I.%I', $1::text, name), action)
    ),
    (
        select extract(epoch from max(clock_timestamp() - xact_start)) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()
    )

-- name: settings
-- What is to be known of a new connection; $1 is the server process as it introduced itself, which a pooler's is not,
-- and $2 a limit for statements, for a connection of our own.
select
    current_setting('server_version_num'),
    current_setting('server_encoding'),
    pg_is_in_recovery(),
    pg_backend_pid() <> $1::integer,
    case when pg_backend_pid() = $1::integer and $2::text is not null then
        set_config('default_transaction_isolation', 'read committed', false)
        || set_config('default_transaction_read_only', 'off', false)
        || set_config('statement_timeout', $2::text, false)
    end

-- name: applied
select version from {schema}.migrations

-- name: ensure_job
insert into {schema}.jobs values ($1, $2, 0, -1, -1, 0, '{{}}') on conflict do nothing

-- name: lock_job
select from {schema}.jobs where namespace = $1 and job = $2 for update

-- name: lock_runs
-- A statement of its own, which sees what was written before the job was locked.
select from {schema}.runs
where namespace = $1 and job = $2 and status in ('open', 'released')
    and slot = any ((select unfinished from {schema}.jobs where namespace = $1 and job = $2)::bigint[])
order by slot for update

-- name: load_job
-- Not before the locks are had: see the function `claim`.
select {now_ms}, fence, floor, pg_current_xact_id() from {schema}.jobs where namespace = $1 and job = $2

-- name: load_runs
select slot, attempt, used, fence, token, holder, lease_ms, started_at, expires_at, status, previous
from {schema}.runs where namespace = $1 and job = $2 order by slot

-- name: ensure_transaction
-- What was decided holds in the transaction that it was decided in; a message that arrives twice fails here.
select 1 / (pg_current_xact_id()::text = $1)::integer

-- name: put_run
insert into {schema}.runs values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
on conflict (namespace, job, slot) do update set
    attempt = excluded.attempt,
    used = excluded.used,
    fence = excluded.fence,
    token = excluded.token,
    holder = excluded.holder,
    lease_ms = excluded.lease_ms,
    started_at = excluded.started_at,
    expires_at = excluded.expires_at,
    status = excluded.status,
    previous = excluded.previous

-- name: drop_run
delete from {schema}.runs where namespace = $1 and job = $2 and slot = $3

-- name: put_job
update {schema}.jobs set fence = $3, floor = $4, newest = $5, records = $6, unfinished = $7
where namespace = $1 and job = $2
