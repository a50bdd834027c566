create table if not exists tenure_schema (version integer not null);

-- A table with a rowid: a state that grows stays a plain page or two, and an update leaves the index alone.
create table if not exists tenure_jobs (
    namespace text not null,
    job text not null,
    state blob not null,
    unique (namespace, job)
);

create table if not exists tenure_results (
    namespace text not null,
    job text not null,
    slot integer not null,
    attempt integer not null,
    fence integer not null,
    status text not null,
    instance text not null,
    started_at integer,
    ended_at integer,
    error text,
    primary key (namespace, job, slot, attempt)
) without rowid;

-- What the jobs are, for readers.
create table if not exists tenure_cards (
    namespace text not null,
    job text not null,
    card text not null,
    seen_at integer not null,
    primary key (namespace, job)
) without rowid;
