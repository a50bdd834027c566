"""Finding a backend by URL, and keeping the URL's secrets."""

import re
import tomllib
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
from tenure import registry
from tenure.errors import InvalidClaim, InvalidUrl, UnknownBackend
from tenure.memory import MemoryBackend
from tenure.registry import connect, connect_existing, hide_secrets, schemes
from tenure.urls import hide_in_error, url_options, whole_number

ROOT = Path(__file__).parents[2]


@pytest.fixture
def installed(monkeypatch):
    """Adds entry points to those that are installed."""

    def install(**by_scheme):
        added = [
            EntryPoint(scheme, value, registry.GROUP)
            for scheme, values in by_scheme.items()
            for value in values.split()
        ]

        def entry_points(*, group, name=None):
            assert group == registry.GROUP
            return EntryPoints(ep for ep in added if name in (None, ep.name))

        monkeypatch.setattr(registry, "entry_points", entry_points)

    return install


def test_a_scheme_finds_its_installed_backend_not_entered():
    backend = connect("memory://", namespace="app", keep_results=5)
    assert isinstance(backend, MemoryBackend)
    assert "memory" in schemes()


@pytest.mark.parametrize("url", ["memory://", "memory://mine"])
def test_a_backend_names_its_store_and_namespace(url):
    assert str(connect(f"{url}?keep_results=5", namespace="app")) == f"{url} (namespace app)"


def from_url_that_creates(url, *, namespace, create=True, **options):
    return url, namespace, create, options


def from_url_that_does_not(url, *, namespace, **options):
    return url, namespace, options


def test_who_only_reads_asks_a_backend_that_can_to_create_nothing(installed):
    installed(one=f"{__name__}:from_url_that_creates", two=f"{__name__}:from_url_that_does_not")
    assert connect_existing("one://h", namespace="app") == ("one://h", "app", False, {})
    assert connect_existing("two://h", namespace="app") == ("two://h", "app", {})
    assert connect("one://h", namespace="app") == ("one://h", "app", True, {})


def test_the_scheme_is_read_in_any_case(installed):
    installed(memory="tenure.memory:from_url")
    assert isinstance(connect("MEMORY://"), MemoryBackend)


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("sqlite:///jobs.db", 'pip install "tenure[sqlite]"'),
        ("etcd://localhost", 'pip install "tenure[etcd]"'),
        ("dir:///tmp", "pip install ./docs/examples/directory (tenure-directory, an example"),
        ("flock:///tmp", "pip install ./docs/examples/flock (tenure-flock, an example"),
    ],
)
def test_a_missing_backend_of_ours_is_named_with_the_command_that_brings_it(installed, url, command):
    installed()
    with pytest.raises(UnknownBackend) as caught:
        connect(url)
    assert command in str(caught.value)
    assert repr(url.partition(":")[0]) in str(caught.value)


def test_what_is_told_to_be_installed_exists():
    extras = tomllib.loads((ROOT / "core/pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for remedy in registry.FIRST_PARTY.values():
        if extra := re.search(r"tenure\[(\w+)\]", remedy):
            assert extra[1] in extras
        (place,) = re.findall(r"pip install \./([\w/]+)", remedy)
        assert (ROOT / place / "pyproject.toml").exists()


@pytest.mark.parametrize("scheme", ["sqlit", "sqlite3", "slqite"])
def test_a_scheme_that_is_mistyped_is_answered_with_the_right_one(installed, scheme):
    installed(memory="tenure.memory:from_url")
    with pytest.raises(UnknownBackend, match=rf"'{scheme}': did you mean sqlite://\?"):
        connect(f"{scheme}:///jobs.db")


def test_an_empty_url_is_answered_with_what_there_is():
    with pytest.raises(InvalidUrl) as caught:
        connect("")
    assert '"sqlite:////var/lib/app/jobs.db" or "memory://"' in str(caught.value)


def test_a_scheme_nobody_knows_is_answered_with_the_installed_ones(installed):
    installed(memory="tenure.memory:from_url", dir="elsewhere:from_url")
    with pytest.raises(UnknownBackend, match=r"'zookeeper'.*installed are dir, memory"):
        connect("zookeeper://user:secret@host")


def test_a_scheme_that_two_distributions_serve_is_refused(installed):
    installed(dir="one:from_url two:from_url")
    with pytest.raises(InvalidUrl, match="one:from_url and by two:from_url"):
        connect("dir:///tmp")


def test_the_same_entry_point_found_twice_is_one(installed):
    installed(memory="tenure.memory:from_url tenure.memory:from_url")
    assert isinstance(connect("memory://"), MemoryBackend)


@pytest.mark.parametrize("value", ["no_such_module_anywhere:from_url", "tenure.memory:no_such_name"])
def test_a_backend_that_cannot_be_loaded_is_named_with_its_cause(installed, value):
    installed(broken=value)
    with pytest.raises(UnknownBackend, match=value) as caught:
        connect("broken://")
    assert isinstance(caught.value.__cause__, ImportError | AttributeError)


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("jobs.db", '"sqlite:///jobs.db"'),
        ("/var/lib/jobs.sqlite3", '"sqlite:////var/lib/jobs.sqlite3"'),
        ("sqlite:jobs.db", '"sqlite:///jobs.db"'),
        ("sqlite:/var/jobs.db", '"sqlite:////var/jobs.db"'),
        ("redis:localhost", '"redis://localhost"'),
        ("redis:/localhost", '"redis://localhost"'),
        ("memory", '"memory://"'),
        ("", '"memory://"'),
        ("localhost:6379", '"memory://"'),
    ],
)
def test_what_is_not_a_url_is_answered_with_the_right_spelling(text, suggestion):
    with pytest.raises(InvalidUrl) as caught:
        connect(text)
    assert suggestion in str(caught.value)


def test_what_is_not_even_a_text_is_refused():
    with pytest.raises(InvalidUrl, match="int is not a URL"):
        connect(7)


@pytest.mark.parametrize("namespace", ["", "a\x00b", "\ud800", "n" * 201, None])
def test_a_namespace_that_breaks_a_limit_is_refused(namespace):
    with pytest.raises(InvalidClaim, match="namespace: "):
        connect("memory://", namespace=namespace)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://user:secret@host/0", "redis://***@host/0"),
        ("redis://secret@host", "redis://***@host"),
        ("redis://:sec/ret@host", "redis://***@host"),
        ("redis://:sec@ret@host", "redis://***@host"),
        ("redis://:sec?ret@host", "redis://***@host"),
        ("redis://:sec#ret@host", "redis://***@host"),
        ("redis://host/0?password=secret&ssl_keyfile=secret", "redis://host/0?password=***&ssl_keyfile=***"),
        ("redis://host?secret", "redis://host?***"),
        ("redis://host?password=secret@secret", "redis://***@secret"),
        ("redis://host/#secret", "redis://host/"),
        ("user:secret@host", "***@host"),
        ("jobs.db", "jobs.db"),
    ],
)
def test_secrets_of_a_url_are_hidden(url, shown):
    assert hide_secrets(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "user:hunter2@host",
        "redis:user:hunter2@host",
        "sqlite:x?key=hunter2",
        "nobody://user:hunter2@host?token=hunter2",
        "memory://user:hunter2@host",
        "memory://name/path?token=hunter2",
        "memory://?hunter=hunter2",
        "memory://:hunter2@[::1",
        "memory://:hunter2@ho\N{ACCOUNT OF}st",
    ],
)
def test_no_message_repeats_a_secret(url):
    with pytest.raises(InvalidUrl) as caught:
        connect(url)
    error = caught.value
    while error is not None:
        assert "hunter2" not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_options_stand_in_the_url_or_beside_it_and_a_keyword_wins():
    known = {"a": str, "b": whole_number}
    assert url_options("x://h?a=1&b=2", {}, known) == {"a": "1", "b": 2}
    assert url_options("x://h?a=1&b=2", {"b": 3}, known) == {"a": "1", "b": 3}


@pytest.mark.parametrize(
    ("url", "given", "message"),
    [
        ("memory://?keep=5", {}, "'keep'.*keep_results"),
        ("memory://", {"keep": 5}, "'keep'.*keep_results"),
        ("memory://?keep_results=5&keep_results=6", {}, "'keep_results' is given twice"),
        ("memory://?keep_results=many", {}, "'keep_results': 'many' is not a whole number"),
        ("memory://?keep_results=", {}, "'keep_results': '' is not a whole number"),
        ("memory://?keep_results=²", {}, "'keep_results': '²' is not a whole number"),
    ],
)
def test_an_option_that_cannot_be_used_is_named_with_the_remedy(url, given, message):
    with pytest.raises(InvalidUrl, match=message):
        connect(url, **given)


def test_a_secret_is_hidden_in_an_error_and_in_all_that_led_to_it():
    first = OSError("the server said: AUTH me hunter2")
    second = ValueError("hunter2", 2, "nothing")
    second.__context__ = first
    third = RuntimeError("hunter22 and pw")
    third.__cause__ = second
    first.__context__ = third  # a circle, as exceptions that are raised again make
    hide_in_error(third, ["hunter2", "pw"])
    assert [first.args, second.args, third.args] == [
        ("the server said: AUTH me ***",),
        ("***", 2, "nothing"),
        ("***2 and pw",),
    ]
