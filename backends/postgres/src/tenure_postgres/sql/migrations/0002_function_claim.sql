-- The decision of docs/protocol.md, section 3: rows in its order, words of tenure.decision, which is the same in Python.
-- It is an object of ClaimResult's fields; `previous` holds an array of LostAttempt's fields for each attempt.
create function {schema}.claim(
    p_namespace text,
    p_job text,
    p_slot bigint,
    p_token text,
    p_instance text,
    p_lease_ms bigint,
    p_takeover boolean,
    p_skip boolean,
    p_max_attempts bigint,
    p_max_late_ms bigint,
    p_after bigint
) returns json language plpgsql as $tenure$
declare
    known {schema}.jobs;
    -- Unfinished runs of the job, by slot: all under skip, else this one alone unless there are too many.
    locked {schema}.runs[];
    run {schema}.runs;
    other {schema}.runs;
    in_the_way {schema}.runs;
    overtaken boolean;
    now_ms bigint;
    many boolean;
    kept bigint[] := '{{}}';
    beaten bigint[] := '{{}}';
    lost jsonb := '[]';
    excess integer;
    dropped bigint;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        -- Under the others, what is read after a lock was waited for is what was there before.
        raise exception 'a claim needs the isolation level read committed' using errcode = 'invalid_transaction_state';
    end if;
    select * into known from {schema}.jobs where namespace = p_namespace and job = p_job for update;
    if not found then
        insert into {schema}.jobs values (p_namespace, p_job, 0, -1, -1, 0, '{{}}') on conflict do nothing;
        select * into known from {schema}.jobs where namespace = p_namespace and job = p_job for update;
    end if;
    many := cardinality(known.unfinished) >= {kept_unfinished};
    if cardinality(known.unfinished) = 1 then  -- by far the most, and an aggregate would cost more than all the rest
        select * into other from {schema}.runs where namespace = p_namespace and job = p_job
            and slot = known.unfinished[1] and status in ('open', 'released') for update;
        locked := case when found then array[other] end;
    elsif known.unfinished <> '{{}}' then
        select array_agg(held) into locked from (
            select * from {schema}.runs
            where namespace = p_namespace and job = p_job and status in ('open', 'released')
                and slot = any (case when p_skip or many then known.unfinished else array[p_slot] end)
            order by slot for update
        ) as held;
    end if;
    -- Not before: who waited for a lock would decide by the time before, and who beats meanwhile would be overlooked.
    now_ms := {now_ms};

    if locked is not null then
        foreach other in array locked loop
            if other.slot = p_slot then
                run := other;
            elsif p_skip and other.status = 'open' and now_ms < other.expires_at then
                in_the_way := other;
            end if;
        end loop;
    end if;
    overtaken := p_skip and known.newest > p_slot;

    if run.slot is not null then
        if run.status = 'open' and run.token = p_token
            and (now_ms < run.expires_at or not overtaken and in_the_way.slot is null)
        then  -- row 2
            update {schema}.runs set lease_ms = p_lease_ms, expires_at = now_ms + p_lease_ms
            where namespace = p_namespace and job = p_job and slot = p_slot;
            return json_build_object('outcome', 'won', 'now_ms', now_ms, 'attempt', run.attempt, 'fence', run.fence,
                'lease_left_ms', p_lease_ms, 'previous', run.previous);
        end if;
        if run.status = 'open' and now_ms < run.expires_at then  -- row 3
            return json_build_object('outcome', 'running', 'now_ms', now_ms, 'attempt', run.attempt,
                'holder', run.holder, 'lease_left_ms', run.expires_at - now_ms);
        end if;
        if overtaken then  -- row 4
            return json_build_object('outcome', 'done', 'now_ms', now_ms, 'status', 'superseded',
                'attempt', run.attempt);
        end if;
        if run.attempt <> p_after then  -- row 5
            return json_build_object('outcome', 'running', 'now_ms', now_ms, 'attempt', run.attempt,
                'holder', run.holder, 'lease_left_ms', 0);
        end if;
        lost := jsonb_build_array(jsonb_build_array(run.slot, run.attempt, run.fence, run.holder, run.started_at,
            run.expires_at, run.status = 'released'));
        if run.used >= p_max_attempts then  -- row 6
            update {schema}.runs set status = 'exhausted', previous = lost
            where namespace = p_namespace and job = p_job and slot = p_slot;
            return json_build_object('outcome', 'done', 'now_ms', now_ms, 'status', 'exhausted',
                'attempt', run.attempt, 'previous', lost);
        end if;
    else
        if p_slot <= known.newest then
            select * into other from {schema}.runs where namespace = p_namespace and job = p_job and slot = p_slot;
            if found then  -- row 1
                return json_build_object('outcome', 'done', 'now_ms', now_ms, 'status', other.status,
                    'attempt', other.attempt, 'previous', case other.status when 'exhausted' then other.previous end);
            end if;
        end if;
        if overtaken or p_slot <= known.floor then  -- row 9
            return json_build_object('outcome', 'done', 'now_ms', now_ms, 'status', 'superseded');
        end if;
        if p_takeover or p_after > 0 or p_slot - now_ms > {early_ms} then  -- rows 10 and 11
            return json_build_object('outcome', 'none', 'now_ms', now_ms,
                'wait_ms', case when p_slot > now_ms then p_slot - now_ms end);
        end if;
        if now_ms - p_slot > p_max_late_ms then  -- row 12
            return json_build_object('outcome', 'late', 'now_ms', now_ms);
        end if;
    end if;
    if in_the_way.slot is not null then  -- rows 7 and 13
        return json_build_object('outcome', 'overlap', 'now_ms', now_ms, 'attempt', coalesce(run.attempt, 0),
            'slot', in_the_way.slot, 'holder', in_the_way.holder, 'lease_left_ms', in_the_way.expires_at - now_ms);
    end if;

    -- Rows 8 and 14. What is no longer unfinished is forgotten here, and not when it ends: an end writes one row.
    if known.unfinished <> '{{}}' then
        if not (p_skip or many) then
            kept := array(
                select slot from {schema}.runs where namespace = p_namespace and job = p_job
                    and slot = any (known.unfinished) and slot <> p_slot and status in ('open', 'released')
            );
        elsif locked is not null then
            excess := cardinality(locked) + (run.slot is null)::integer - {kept_unfinished};
            foreach other in array locked loop
                continue when other.slot = p_slot;
                excess := excess - 1;
                if p_skip and other.slot < p_slot
                    or not p_skip and excess >= 0 and (other.status = 'released' or now_ms >= other.expires_at)
                then
                    beaten := beaten || other.slot;
                    lost := lost || jsonb_build_array(jsonb_build_array(other.slot, other.attempt, other.fence,
                        other.holder, other.started_at, other.expires_at, other.status = 'released'));
                else
                    kept := kept || other.slot;
                end if;
            end loop;
            if beaten <> '{{}}' then
                update {schema}.runs set status = 'superseded'
                where namespace = p_namespace and job = p_job and slot = any (beaten);
            end if;
        end if;
    end if;
    kept := kept || p_slot;
    known.fence := greatest(known.fence + 1, now_ms);
    -- Ended runs are dropped some at a time: a claim that does writes more than the others do.
    excess := known.records + (run.slot is null)::integer - cardinality(kept)
        - case when p_skip then {kept_ended_skip} else {kept_ended_allow} end;
    if excess >= {dropped_together} then
        with oldest as (
            delete from {schema}.runs where namespace = p_namespace and job = p_job and slot = any (array(
                select slot from {schema}.runs where namespace = p_namespace and job = p_job and slot <> all (kept)
                order by slot limit excess
            )) returning slot
        ) select max(slot) into dropped from oldest;
        known.floor := greatest(known.floor, dropped);
        known.records := known.records - excess;
    end if;
    if run.slot is not null then
        update {schema}.runs set attempt = run.attempt + 1, used = run.used + 1, fence = known.fence, token = p_token,
            holder = p_instance, lease_ms = p_lease_ms, started_at = now_ms, expires_at = now_ms + p_lease_ms,
            status = 'open', previous = lost
        where namespace = p_namespace and job = p_job and slot = p_slot;
    else
        insert into {schema}.runs values (p_namespace, p_job, p_slot, 1, 1, known.fence, p_token, p_instance,
            p_lease_ms, now_ms, now_ms + p_lease_ms, 'open', nullif(lost, '[]'));
        known.records := known.records + 1;
    end if;
    update {schema}.jobs set fence = known.fence, floor = known.floor, newest = greatest(known.newest, p_slot),
        records = known.records, unfinished = kept
    where namespace = p_namespace and job = p_job;
    return json_build_object('outcome', 'won', 'now_ms', now_ms, 'attempt', coalesce(run.attempt, 0) + 1,
        'fence', known.fence, 'lease_left_ms', p_lease_ms, 'previous', nullif(lost, '[]'));
end
$tenure$;
