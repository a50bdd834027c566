"""What a failed assertion of a rule says, where pytest does not rewrite it: the statement and the values in it."""

import ast
import linecache
import re
from pathlib import Path
from types import FrameType, TracebackType

PACKAGE = str(Path(__file__).parent)
_SHOWN = 300
_NOTHING = re.compile(r", \w+=(?:None|\(\))(?=[,)])")
"""Fields of records that say nothing; with them a message is twice as long."""


def told(error: AssertionError) -> str:
    """The assertion's own message, or its statement with the values of the names in it."""
    message = str(error).strip()
    if message:
        return _NOTHING.sub("", message)
    frame, line = _innermost(error.__traceback__)
    if frame is None:
        return "an assertion without a message"
    statement = _statement(frame.f_code.co_filename, line)
    if statement is None:
        return linecache.getline(frame.f_code.co_filename, line).strip()
    place = f"{Path(frame.f_code.co_filename).name}:{line}"
    return "\n".join([f"assert {ast.unparse(statement.test)}  ({place})", *_values(statement.test, frame)])


def _innermost(traceback: TracebackType | None) -> tuple[FrameType | None, int]:
    """The last frame of the suite's own code."""
    frame, line = None, 0
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename.startswith(PACKAGE):
            frame, line = traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next
    return frame, line


def _statement(filename: str, line: int) -> ast.Assert | None:
    try:
        module = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return None
    asserts = [node for node in ast.walk(module) if isinstance(node, ast.Assert)]
    return next((node for node in asserts if node.lineno <= line <= (node.end_lineno or node.lineno)), None)


def _values(test: ast.expr, frame: FrameType) -> list[str]:
    names = dict.fromkeys(node.id for node in ast.walk(test) if isinstance(node, ast.Name))
    shown = []
    for name in names:
        value = frame.f_locals.get(name)
        if value is None or callable(value) or type(value).__module__.startswith("tenure_conformance"):
            continue
        text = _NOTHING.sub("", repr(value))
        if " object at 0x" in text:
            continue
        shown.append(f"  where {name} = {text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}")
    return shown
