-- What the jobs are, for readers.
create table {schema}.cards (
    namespace text collate "C" not null,
    job text collate "C" not null,
    card text not null,
    seen_at bigint not null,
    primary key (namespace, job)
);
