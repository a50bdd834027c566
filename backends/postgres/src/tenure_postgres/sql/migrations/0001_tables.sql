-- Which of the files like this one were run, by number.
create table {schema}.migrations (
    version integer primary key,
    applied_at timestamptz not null default now()
);

-- One row per job. Fence and floor are never dropped.
create table {schema}.jobs (
    namespace text collate "C" not null,
    job text collate "C" not null,
    fence bigint not null,
    -- A slot at or below it, without a record, can never start.
    floor bigint not null,
    -- The newest slot that ever started.
    newest bigint not null,
    -- How many rows of runs there are.
    records integer not null,
    -- The slots of runs that had not ended when last looked at, ascending; all other records have ended.
    unfinished bigint[] not null,
    primary key (namespace, job)
) with (fillfactor = 50);

-- One row per run that is remembered. Nothing that changes at a heartbeat or at a run's end is indexed.
create table {schema}.runs (
    namespace text collate "C" not null,
    job text collate "C" not null,
    slot bigint not null,
    attempt bigint not null,
    -- Won attempts less released ones.
    used bigint not null,
    fence bigint not null,
    token text collate "C" not null,
    holder text not null,
    lease_ms bigint not null,
    started_at bigint not null,
    expires_at bigint not null,
    -- open, released, success, failed, exhausted or superseded
    status text collate "C" not null,
    -- What the win of this attempt was told of lost ones, null for nothing.
    previous jsonb,
    primary key (namespace, job, slot)
) with (fillfactor = 70);

create table {schema}.results (
    namespace text collate "C" not null,
    job text collate "C" not null,
    slot bigint not null,
    attempt bigint not null,
    fence bigint not null,
    status text not null,
    instance text not null,
    started_at bigint,
    ended_at bigint,
    error text,
    primary key (namespace, job, slot, attempt)
);

-- The greatest fence that a transaction has shown to `guard`, by scope; slot is -1 where the scope is the job. It may
-- be in another database than the rest.
create table {schema}.fences (
    namespace text collate "C" not null,
    job text collate "C" not null,
    slot bigint not null,
    fence bigint not null,
    -- The greatest that was known before.
    known bigint not null,
    primary key (namespace, job, slot),
    constraint stale_fence check (fence >= known)
) with (fillfactor = 70);
