-- name: load
select
    cast(round((julianday('now') - 2440587.5) * 86400000) as integer),
    (select state from tenure_jobs where namespace = :namespace and job = :job);

-- name: store
insert into tenure_jobs (namespace, job, state) values (:namespace, :job, :state)
on conflict (namespace, job) do update set state = excluded.state;

-- name: active
-- One row at least, for the clock; the first row's is that of the snapshot.
select
    cast(round((julianday('now') - 2440587.5) * 86400000) as integer),
    known.job,
    known.state
from (select 1) left join tenure_jobs as known
    on known.namespace = :namespace and known.job in (select value from json_each(:jobs))
order by known.job;

-- name: save_result
insert into tenure_results (namespace, job, slot, attempt, fence, status, instance, started_at, ended_at, error)
values (:namespace, :job, :slot, :attempt, :fence, :status, :instance, :started_at, :ended_at, :error)
on conflict (namespace, job, slot, attempt) do update set
    fence = excluded.fence,
    status = excluded.status,
    instance = excluded.instance,
    started_at = excluded.started_at,
    ended_at = excluded.ended_at,
    error = excluded.error
where :overwrites;

-- name: prune
delete from tenure_results
where namespace = :namespace and job = :job and (slot, attempt) <= (
    select slot, attempt from tenure_results
    where namespace = :namespace and job = :job
    order by slot desc, attempt desc limit 1 offset :keep
);

-- name: results
select slot, attempt, fence, status, instance, started_at, ended_at, error from tenure_results
where namespace = :namespace and job = :job
order by slot desc, attempt desc limit :limit;

-- name: save_card
insert into tenure_cards (namespace, job, card, seen_at) values (?, ?, ?, ?)
on conflict (namespace, job) do update set card = excluded.card, seen_at = excluded.seen_at;

-- name: forget_cards
delete from tenure_cards
where namespace = :namespace and seen_at < cast((julianday('now') - 2440587.5) * 86400000 as integer) - :kept_ms;

-- name: cards
select card from tenure_cards where namespace = :namespace order by job;
