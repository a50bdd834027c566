"""The story of a slot, told of what instances have really left in history."""

import pytest
from tenure.history import Row, read_rows
from tenure.job import make_job
from tenure.model import ActiveRun, JobCard
from tenure.outlook import is_gone, next_slot, overdue_at_ms
from tenure.schedule import cron, every
from tenure.story import Known, newest, newest_trouble, tell, tell_last

ONCE = cron("10 0 12 * * *")


def card(**changes):
    fields = {"schedule": "every 10s", "words": "every 10 seconds", "lease_ms": 30_000, "overlap": "skip"}
    fields |= {"max_attempts": 3, "max_late_ms": 60_000, "next_slot": None, "instance": "a", "seen_at_ms": 0}
    return JobCard(job="sync", **{**fields, **changes})


def known(world, **changes):
    active = world.active("sync")
    rows = read_rows(world.results("sync"), active, 1_000)
    return Known(job="sync", now_ms=world.store_ms(), rows=rows, active=active, card=card(**changes))


def story(world, slot_s=10, **changes):
    told = tell(known(world, **changes), world.start_ms + slot_s * 1_000)
    return told.status, [(line.kind, line.text) for line in told.lines], told.advice


def kinds(lines):
    return [kind for kind, _ in lines]


def test_a_run_that_went_well(world, work, jobs):
    world.start(jobs(work, schedule=ONCE), "a")
    world.advance("1m")
    status, lines, advice = story(world)
    assert (status, advice) == ("success", "nothing to do")
    assert [text for _, text in lines][2] == "success after 3.000 s"
    assert lines[1][1].startswith("claimed by a: attempt 1, fence ")
    assert lines[1][1].endswith(", 0.000 s after the slot")


def test_a_run_that_began_near_its_limit_says_so():
    rows = [Row(10_000, 1, "success", 7, "a", 50_000, 51_000)]
    told = tell(Known(job="sync", now_ms=60_000, rows=rows, card=card()), 10_000)
    assert told.advice == "the work is done; it began 40.000 s late, and 1m is the limit"


def test_a_deploy_in_the_middle_of_a_run(world, work, jobs):
    """A graceful stop gives the run back, and another instance has it at once."""
    work.takes_s = 20
    a = world.start(jobs(work, schedule=ONCE, lease="6s"), "a")
    world.advance("12s")
    world.start(jobs(work, schedule=ONCE, lease="6s"), "b")
    a.stop("1s", wait=False)
    world.advance("1m")
    status, lines, advice = story(world)
    assert (status, advice) == ("success", "nothing to do")
    assert kinds(lines) == ["due", "claim", "released", "takeover", "end"]
    assert "interrupted after 3" in lines[2][1]
    assert "taken over by b: attempt 2" in lines[3][1]


def test_a_killed_holder(world, work, jobs):
    work.takes_s = 20
    a = world.start(jobs(work, schedule=ONCE, lease="6s"), "a")
    world.start(jobs(work, schedule=ONCE, lease="6s"), "b")
    world.run_until(lambda: work.executions)
    holder = a if work.executions[0].instance == "a" else world.instances[1]
    holder.crash()
    world.advance("2m")
    status, lines, advice = story(world)
    assert (status, advice) == ("success", f"the work is done; see what became of {holder.name}")
    assert kinds(lines) == ["due", "claim", "lost", "takeover", "end"]
    assert lines[2][1] == f"its lease was over: {holder.name} had been silent for it"


def test_a_holder_that_was_cut_off_and_noticed(world, work, jobs):
    work.takes_s = 100
    a = world.start(jobs(work, schedule=ONCE, lease="6s"), "a")
    world.advance("11s")
    world.start(jobs(work, schedule=ONCE, lease="6s"), "b")
    a.freeze()
    world.advance("20s")
    a.thaw()
    world.advance("5m")
    status, lines, _ = story(world)
    assert status == "success"
    assert kinds(lines) == ["due", "claim", "takeover", "lost", "end"]
    assert "a noticed after " in lines[3][1]


def test_a_run_that_kills_each_of_its_holders(world, work, jobs):
    work.takes_s = 100
    for name in "abcd":
        world.start(jobs(work, schedule=ONCE, lease="6s", max_attempts=2), name)
    for attempt in (1, 2):
        world.run_until(lambda attempt=attempt: len(work.executions) == attempt)
        next(one for one in world.instances if one.name == work.executions[-1].instance).crash()
    world.advance("2m")
    status, lines, advice = story(world)
    assert status == "exhausted"
    assert kinds(lines) == ["due", "claim", "lost", "takeover", "lost", "unstarted"]
    assert lines[-1][1].startswith("given up: its 2 attempts were used up (told by ")
    assert "killed for memory?" in advice


def test_one_attempt_is_no_attempts():
    rows = [Row(10_000, 1, "crashed", 1, "a", 10_000, 40_000), Row(10_000, 0, "exhausted", instance="b")]
    told = tell(Known(job="sync", now_ms=60_000, rows=rows), 10_000)
    assert told.lines[-1].text == "given up: its only attempt was used up (told by b)"


def test_slots_that_overlapped_and_were_superseded_name_the_other_run(world, work, jobs):
    work.takes_s = 25
    a = world.start(jobs(work, lease="6s"), "a")
    world.advance("22s")
    status, lines, _ = story(world, 20)
    assert status == "overlap"
    assert "the run of 2026-12-01 12:00:10, attempt 1 by a, was still going" in lines[1][1]
    world.advance("20s")
    a.crash()
    world.advance("10s")
    work.takes_s = 1
    world.start(jobs(work, lease="6s"), "b")
    world.advance("1m")
    status, lines, _ = story(world, 40)
    assert status == "superseded"
    assert lines[-1][1].startswith("given up: the newer run of 2026-12-01 12:01:00 had started")


def test_what_nobody_takes_over_says_to_start_an_instance(world, work, jobs):
    work.takes_s = 100
    a = world.start(jobs(work, schedule=ONCE, lease="6s"), "a")
    world.advance("11s")
    status, lines, _ = story(world)
    assert (status, lines[-1][0]) == ("running", "running")
    a.crash()
    world.advance("1m")
    status, lines, advice = story(world)
    assert (status, lines[-1][0]) == ("lease over", "lost")
    assert "start one" in advice


@pytest.mark.parametrize(
    ("now_ms", "max_late_ms", "status"),
    [(25_000, 60_000, "not yet"), (85_000, 60_000, "missed"), (25_000, None, "missed"), (15_000, 60_000, "not due")],
)
def test_a_slot_that_may_start_still_is_not_called_missed(now_ms, max_late_ms, status):
    told = tell(Known(job="sync", now_ms=now_ms, rows=[], card=card(max_late_ms=max_late_ms)), 20_000)
    assert told.status == status


def test_a_run_that_was_triggered_is_no_slot_of_the_schedule(world, work):
    a = world.start([make_job("sync", every("1h"), work, {})], "a")
    world.advance("1m")
    a.trigger("sync")
    world.advance("1m")
    slot = newest(known(world, schedule="every 1h"))
    told = tell(known(world, schedule="every 1h"), slot)
    assert (told.status, told.lines[0].text.startswith("no slot of its schedule")) == ("success", True)


def test_the_newest_trouble_is_what_did_not_end_well():
    rows = [
        Row(50, 1, "running"),
        Row(40, 2, "success"),
        Row(40, 1, "crashed"),
        Row(30, 0, "late"),
        Row(20, 1, "failed"),
    ]
    of = Known(job="sync", now_ms=60, rows=rows)
    assert (newest(of), newest_trouble(of)) == (50, 30)
    assert newest(Known(job="sync", now_ms=60, rows=[])) is None


GOOD = [Row(slot, 1, "success", 1, "a", slot, slot + 1_000) for slot in (50_000, 40_000, 20_000)]


@pytest.mark.parametrize(
    ("now_ms", "changes", "slot"),
    [
        (100_000, {}, None),  # 30 000 may start still
        (100_001, {}, 30_000),
        (130_000, {}, 30_000),
        (130_001, {}, 60_000),
        (200_001, {}, 130_000),
        (200_001, {"max_late_ms": 100_000}, 100_000),
        (200_001, {"schedule": "my own"}, None),
    ],
)
def test_the_newest_trouble_may_be_a_slot_that_nobody_claimed(now_ms, changes, slot):
    changes = {"max_late_ms": 70_000, **changes}
    assert newest_trouble(Known(job="sync", now_ms=now_ms, rows=GOOD, card=card(**changes))) == slot


def test_of_a_job_that_is_gone_or_runs_no_newer_slot_is_missed():
    gone = Known(job="sync", now_ms=900_000, rows=GOOD[:2], card=card(), gone=True)
    assert newest_trouble(gone) is None
    assert tell_last(gone).advice == "nothing to do"
    run = ActiveRun("sync", 60_000, 1, 1, "a", live=True, lease_left_ms=1_000, started_at=60_000)
    rows = [Row(60_000, 1, "running", 1, "a", 60_000), *GOOD[:2]]
    runs = Known(job="sync", now_ms=900_000, rows=rows, active=[run], card=card())
    assert newest_trouble(runs) is None
    assert "start an instance" not in tell_last(runs).advice


def test_after_an_outage_the_last_slot_s_story_says_that_nobody_was_up():
    told = tell_last(Known(job="sync", now_ms=165_000, rows=GOOD, card=card()))
    assert (told.slot, told.status) == (50_000, "success")
    assert (told.lines[-1].kind, told.lines[-1].at_ms) == ("missed", 60_000)
    assert told.lines[-1].text.startswith("no slot since has a record: no instance that has the job was up")
    assert told.advice == "a success has been overdue for 14s: start an instance"
    assert tell_last(Known(job="sync", now_ms=115_000, rows=GOOD, card=card())).advice == "nothing to do"


def test_a_job_that_never_ran_tells_of_the_first_slot_that_it_missed():
    told = tell_last(Known(job="sync", now_ms=165_000, rows=[], card=card(next_slot=20_000)))
    assert (told.slot, told.status) == (20_000, "missed")
    assert tell_last(Known(job="sync", now_ms=25_000, rows=[], card=card(next_slot=20_000))) is None


def test_an_overdue_job_that_fails_says_both():
    rows = [Row(160_000, 1, "failed", 1, "a", 160_000, 161_000), *GOOD]
    advice = tell_last(Known(job="sync", now_ms=165_000, rows=rows, card=card())).advice
    assert advice.startswith("a success has been overdue for 14s; the handler raised")


# The outlook


def test_the_next_slot_is_the_schedule_s_or_the_card_s():
    assert next_slot(card(), 25_000) == 30_000
    assert next_slot(card(schedule="my own", next_slot=70_000), 25_000) == 70_000
    assert next_slot(card(schedule="my own", next_slot=20_000), 25_000) is None


@pytest.mark.parametrize(
    ("rows", "changes", "at_ms"),
    [
        ([], {"next_slot": 20_000}, 20_000 + 60_000 + 30_000),
        ([], {}, None),
        ([Row(10_000, 1, "success", 1, "a", 10_500, 12_500)], {}, 20_000 + 60_000 + 30_000 + 2_000),
        ([Row(30_000, 1, "failed"), Row(10_000, 1, "success", 1, "a", 10_000, 10_000)], {}, 20_000 + 90_000),
        ([Row(30_000, 1, "failed"), Row(10_000, 0, "late")], {}, 10_000 + 90_000),
        ([Row(10_000, 1, "success", 1, "a", 0, 0)], {"max_late_ms": None}, 20_000 + 60_000 + 30_000),
        ([Row(10_000, 1, "success", 1, "a", 0, 0)], {"schedule": "my own", "next_slot": 10_000}, None),
    ],
)
def test_a_success_is_overdue_once_the_slot_after_the_last_one_should_have_ended(rows, changes, at_ms):
    assert overdue_at_ms(card(**changes), rows) == at_ms


def test_a_job_that_nobody_tells_of_while_others_are_told_of_is_gone():
    hour = 3_600_000
    assert not is_gone(card(seen_at_ms=10 * hour), 12 * hour)
    assert is_gone(card(seen_at_ms=10 * hour), 14 * hour)
