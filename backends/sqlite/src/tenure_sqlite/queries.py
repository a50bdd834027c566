"""The backend's SQL, read from the files beside this one."""

import re
from importlib.resources import files

_FILES = files(__package__)
_NAMED = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def _read(name: str) -> str:
    return (_FILES / name).read_text("utf-8")


_parts: list[str] = _NAMED.split(_read("queries.sql"))[1:]
_QUERIES = dict(zip(_parts[::2], _parts[1::2], strict=True))

SCHEMA = _read("schema.sql").split(";\n")
LOAD = _QUERIES["load"]
STORE = _QUERIES["store"]
ACTIVE = _QUERIES["active"]
SAVE_RESULT = _QUERIES["save_result"]
PRUNE = _QUERIES["prune"]
RESULTS: str = _QUERIES["results"]
SAVE_CARD: str = _QUERIES["save_card"]
FORGET_CARDS: str = _QUERIES["forget_cards"]
CARDS: str = _QUERIES["cards"]
