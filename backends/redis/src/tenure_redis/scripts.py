"""The scripts as the server runs them: each is a file, with the files it needs before it."""

from dataclasses import dataclass, field
from hashlib import sha1
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Script:
    """A script; servers that know it run it by its digest."""

    source: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        """Reckon the digest."""
        object.__setattr__(self, "sha", sha1(self.source.encode(), usedforsecurity=False).hexdigest())


def _script(*names: str) -> Script:
    folder = files("tenure_redis") / "lua"
    return Script("\n".join((folder / f"{name}.lua").read_text("utf-8") for name in names))


CLAIM = _script("clock", "job", "claim")
HOLD = _script("clock", "job", "hold")
ACTIVE = _script("clock", "job", "active")
SAVE_RESULT = _script("save_result")
SAVE_CARDS = _script("clock", "save_cards")
RIGHTS = _script("rights")
ENTER = _script("enter")
