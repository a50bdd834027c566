"""Names: exact, whole, without a meaning of their own."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from tenure.errors import InvalidClaim
from tenure.model import MAX_SLOT

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import answered, only, refused
from tenure_conformance.records import attempted
from tenure_conformance.rule import rule


async def _assert_apart(bench: Bench, names: Sequence[str]) -> None:
    """Jobs of these names have runs and records of their own, and come back with exactly these names."""
    assert len(set(names)) == len(names)
    for number, name in enumerate(names):
        held = await bench.a.win(job=name, instance=f"i{number}", token="one for all")
        assert held.attempt == 1, f"{name!r} was taken for another name"
        await bench.a.save_result(name, attempted(SLOT + number))
    shown = {run.job: run.holder for run in (await bench.b.active(*names)).runs}
    assert shown == {name: f"i{number}" for number, name in enumerate(names)}
    for number, name in enumerate(names):
        assert [run.job for run in (await bench.b.active(name)).runs] == [name]
        assert [one.slot for one in await bench.b.results(name)] == [SLOT + number], name
    for number, name in enumerate(names):
        told = await bench.b.ask(job=name)
        assert (told.outcome, told.holder) == ("running", f"i{number}"), name
    for number, name in enumerate(names):
        end = (bench.b.heartbeat, bench.b.finish, bench.b.release)[number % 3]
        assert await end(name, SLOT, "one for all"), name
        live = {run.job for run in (await bench.b.active(*names)).runs if run.live}
        assert live == {other for n, other in enumerate(names) if n > number or n % 3 == 0}, name


@rule(
    "NAM-001",
    level="lease",
    spec="names-exact",
    catches=(
        "names-as-files",
        "sqlite-active-like",
        "jobs-share-results",
        "active-by-prefix",
        "overlap-of-any-job",
        "jobs-are-one",
    ),
)
@answered("a possible name")
async def separators_join_nothing(bench: Bench) -> None:
    """Names with separators, and with what reads like a slot at their end, do not run into each other."""
    signs = (":", "/", ".", "#", "|", "-", "_", ",", ";", "::", "{", "}", "{a}")
    await _assert_apart(
        bench, [f"a{sign}b" for sign in signs] + ["a", "b", "ab", "a:b:c", f"a:{SLOT}", f"{SLOT}", "1", "01"]
    )


@rule(
    "NAM-002",
    level="lease",
    spec="names-exact",
    catches=(
        "names-normalized",
        "names-compatible",
        "names-without-surrogates",
        "active-names-folded",
        "names-casefolded",
        "jobs-share-results",
    ),
)
@answered("a possible name")
async def unicode_forms_differ(bench: Bench) -> None:
    """Names that look alike in different Unicode forms are different, and so are pictures, widths and invisible
    signs."""
    await _assert_apart(
        bench, ["é", "e\u0301", "🎩", "💥", "ﬁ", "fi", "Ａ", "A", "a\u200bb", "ab", "ß", "ss", "İ", "i̇"]
    )


@rule(
    "NAM-003",
    level="lease",
    spec="names-exact",
    catches=(
        "sqlite-nocase",
        "active-names-folded",
        "sqlite-active-like",
        "names-lower-ascii",
        "names-casefolded",
        "jobs-share-results",
    ),
)
async def case_counts(bench: Bench) -> None:
    """Names that differ in case are different."""
    await _assert_apart(bench, ["sync", "Sync", "SYNC", "sYnc", "ÄPFEL", "äpfel"])


@rule(
    "NAM-004",
    level="lease",
    spec="names-exact",
    catches=(
        "names-compatible",
        "sqlite-trimmed",
        "names-padded",
        "names-stripped",
        "jobs-share-results",
        "active-by-prefix",
    ),
)
async def spaces_count(bench: Bench) -> None:
    """Spaces at the beginning, at the end and within a name count."""
    await _assert_apart(bench, ["a", " a", "a ", " a ", "a  b", "a b", " ", "  ", "\u00a0"])


@rule(
    "NAM-005",
    level="lease",
    spec="names-exact",
    catches=(
        "names-as-files",
        "names-without-wildcards",
        "active-names-folded",
        "sqlite-active-like",
        "jobs-share-results",
        "active-by-prefix",
    ),
)
@answered("a possible name")
async def signs_mean_nothing(bench: Bench) -> None:
    """Signs that patterns, paths, queries and scripts know are plain letters in a name."""
    names = [
        "*",
        "?",
        "[a]",
        "%",
        "_",
        "'",
        '"',
        "\\",
        "\\\\",
        "$",
        "$set",
        "..",
        ".",
        "../x",
        "/",
        "a.b",
        "--",
        "`",
        "~",
        "^",
        "&",
    ]
    await _assert_apart(
        bench,
        [*names, "(", ")", "+", "<x>", "null", "None", "true", "0", "-1", "a'; DROP TABLE runs; --", "{}", "=", "@"],
    )


@rule(
    "NAM-006",
    level="lease",
    spec=("limits-name", "limits-before-send"),
    catches=(
        "name-counted-in-characters",
        "name-too-long",
        "names-cut-at-199",
        "active-unchecked-names",
        "names-cut-at-64",
        "invalid-is-false",
    ),
)
@answered("a long name")
async def longest_names_work(bench: Bench) -> None:
    """A name of 200 bytes works and its last byte counts, in ASCII and beyond; one of 201 bytes is InvalidClaim."""
    await _assert_apart(
        bench, ["x" * 200, "x" * 199 + "y", "x" * 199, "é" * 100, "é" * 99 + "ee", "🎩" * 50, "🎩" * 49 + "💥"]
    )
    for name in ("x" * 201, "é" * 100 + "x", "🎩" * 51):
        for what, call in _calls_of_job(bench, name):
            with refused(InvalidClaim, f"{what} of a name of {len(name.encode())} bytes"):
                await call()


@rule(
    "NAM-007",
    level="lease",
    spec=("limits-name", "limits-before-send"),
    catches=(
        "name-empty",
        "name-with-controls",
        "name-with-nul",
        "name-with-surrogates",
        "active-unchecked-names",
        "invalid-is-false",
    ),
)
async def impossible_names_are_refused(bench: Bench) -> None:
    """An empty name, one with a control character or a lone surrogate, is InvalidClaim in every call, and
    nothing is written."""
    await bench.a.win()
    async with bench.unchanged():
        for name in ("", "a\x00b", "a\nb", "\t", "\x7f", "a\ud800", "\x9f"):
            for what, call in _calls_of_job(bench, name):
                with refused(InvalidClaim, f"{what} of {name!r}"):
                    await call()


def _calls_of_job(bench: Bench, name: str) -> list[tuple[str, Callable[[], Awaitable[object]]]]:
    backend = bench.a.backend
    return [
        ("heartbeat", partial(backend.heartbeat, name, SLOT, "token")),
        ("finish", partial(backend.finish, name, SLOT, "token", "success")),
        ("release", partial(backend.release, name, SLOT, "token")),
        ("active", partial(backend.active, ["job", name])),
        ("save_result", partial(backend.save_result, name, attempted())),
        ("results", partial(backend.results, name)),
    ]


@rule(
    "NAM-008",
    level="lease",
    spec=("limits-token", "limits-slot", "limits-before-send"),
    catches=("finish-unchecked", "heartbeat-unchecked", "release-unchecked", "invalid-is-false", "slot-in-32-bits"),
)
async def impossible_runs_are_refused(bench: Bench) -> None:
    """A slot or a token beyond the limits is InvalidClaim in heartbeat, finish and release, and nothing is written."""
    held = await bench.a.win()
    backend = bench.a.backend
    async with bench.unchanged():
        for slot, token in (
            (-1, held.token),
            (MAX_SLOT + 1, held.token),
            (1.5, held.token),
            (str(SLOT), held.token),
            (True, held.token),
            (None, held.token),
            (SLOT, ""),
            (SLOT, "x" * 65),
            (SLOT, "é"),
            (SLOT, None),
            (SLOT, b"token"),
        ):
            for what, call in (
                ("heartbeat", partial(backend.heartbeat, "job", slot, token)),
                ("finish", partial(backend.finish, "job", slot, token, "success")),
                ("release", partial(backend.release, "job", slot, token)),
            ):
                with refused(InvalidClaim, f"{what} of slot {slot!r} with token {token!r}"):
                    await call()
    assert await held.heartbeat()


@rule("NAM-009", level="lease", spec=("limits-token", "names-exact"), catches=("token-alphanumeric",))
@answered("a possible token")
async def every_token_works(bench: Bench) -> None:
    """Tokens of 1 and of 64 characters, and of every printable ASCII character, hold their runs."""
    tokens = ["x", "y" * 64, " ", "  ", *(chr(code) for code in range(33, 127))]
    for number, token in enumerate(tokens):
        held = await bench.a.win(slot=SLOT + number, token=token, overlap="allow")
        assert await held.heartbeat(by=bench.b), f"{token!r} holds nothing"
    for number, token in enumerate(tokens):
        assert await bench.b.finish("job", SLOT + number, token)
    assert await bench.look() == {}


@rule(
    "NAM-010",
    level="lease",
    spec=("limits-name", "names-exact", "result-running"),
    catches=(
        "instance-cut-at-64",
        "instance-stripped",
        "running-hides-the-holder",
        "overlap-of-any-job",
        "jobs-are-one",
    ),
)
@answered("a possible holder")
async def holders_are_told_exactly(bench: Bench) -> None:
    """An instance's id comes back exactly, up to 200 bytes, wherever the holder is told."""
    for number, instance in enumerate(
        ("host-1-a", " a ", "é", "e\u0301", "🎩" * 50, "x" * 200, "a:b|c", "0", "None", "'%_*\\")
    ):
        job = f"job {number}"
        held = await bench.a.win(job=job, instance=instance)
        assert (await bench.b.ask(job=job)).holder == instance
        assert (await bench.b.ask(job=job, slot=SLOT + 1)).holder == instance
        assert (await bench.look(job))[job, SLOT][2] == instance
        assert await held.release()
        assert (await bench.b.ask(job=job, after=9)).holder == instance
        assert only((await bench.b.win(job=job, after=1)).result.previous).holder == instance


@rule(
    "NAM-011",
    level="lease",
    spec=("limits-name", "limits-before-send", "namespace-only"),
    catches=("namespace-unchecked", "namespace-ignored"),
)
async def impossible_namespaces_are_refused(bench: Bench) -> None:
    """A namespace beyond the limits of names is InvalidClaim, at the latest when its backend is entered."""
    for namespace in ("", "x" * 201, "é" * 101, "a\x00b", "a\n", "\ud800"):
        with refused(InvalidClaim, f"namespace {namespace!r}"):
            async with bench.target.open(bench.url, namespace):
                pass
    async with bench.visitor("guest", namespace=bench.namespace + "é") as guest:
        assert (await guest.win()).attempt == 1


_MEANINGFUL = (
    *("%2F", "/", "%00", "%20", " ", "%s", "%d", "%(job)s", "%%", "%"),
    *("{}", "{0}", "{job}", "{{job}}", "${job}", "$job", "$1", "$$ROOT", "$where", '{"$gt": ""}', '["a"]'),
    *("\\x61", "\\u0061", "a", "\\n", "\\0", "\u2028", "\u2029", "\ufeff", "&amp;", "&", "<b>a</b>"),
    *(".*", "^a$", "a|b", "[!a]", "[^a]", "{a,b}", "a*", "?", ":pk", "#sk", "attribute_not_exists(pk)"),
    *("x' or '1'='1", "'; drop schema public cascade; --", "$$; select pg_sleep(9); --", "E'\\\\x61'"),
    *("]] return redis.call('FLUSHALL') --", '"); os.exit() --', "$(id)", "`id`", "; rm -rf /", "${jndi:ldap://a}"),
)
"""What is an escape, a placeholder, a pattern, an operator or code to some store, shell, page or log."""


@rule(
    "NAM-012",
    level="lease",
    spec=("names-exact", "limits-name"),
    catches=("names-unquoted", "names-filled-in", "names-unescaped", "jobs-are-one"),
)
@answered("a possible name")
async def nothing_is_carried_out(bench: Bench) -> None:
    """Names that are escapes, placeholders, operators, patterns or code to some store are kept as they are."""
    witness = await bench.a.win(job="witness")
    await _assert_apart(bench, _MEANINGFUL)
    assert await witness.heartbeat()


@rule(
    "NAM-013",
    level="lease",
    spec=("names-exact", "namespace-only", "limits-name", "limits-token", "limits-error-text"),
    catches=("namespace-filled-in", "instance-stripped", "namespace-ignored", "error-in-ascii"),
)
@answered("possible texts")
async def texts_are_carried_as_they_are(bench: Bench) -> None:
    """Namespaces, tokens, holders and errors that are escapes, placeholders or code come back as they were given."""
    namespaces = [
        bench.namespace + text for text in ("{}", "{0}", "%s", "$1", "' --", "]]", "%2F", "/", '"}', "*", "\\")
    ]
    for number, namespace in enumerate(namespaces):
        client = await bench.client(f"n{number}", namespace=namespace)
        assert (await client.win()).attempt == 1, f"namespace {namespace!r} was taken for another"
    for number, text in enumerate(_MEANINGFUL):
        job, instance = f"job {number}", f"{text} "
        token = text if text.isascii() else "token"
        held = await bench.a.win(job=job, instance=instance, token=token)
        assert (await bench.look(job))[job, SLOT][2] == instance
        assert await held.heartbeat(by=bench.b), f"token {token!r} holds nothing"
        record = replace(attempted(status="failed", error=f"{text}\n\u00e9{text}"), instance=instance)
        await bench.a.save_result(job, record)
        assert await bench.b.results(job) == [record]
