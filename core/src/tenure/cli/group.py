"""What all commands have in common: an error is one line on stderr, and the exit code says whose fault it is."""

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from tenure.errors import InvalidInput, TenureError, UnknownBackend

FAILURE = 1
USAGE = 2
INTERRUPTED = 130


class OneLineErrors(click.Group):
    """Commands whose errors are one line, without a traceback: exit code 1 for a failure, 2 for a wrong call."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override] # never returns, whatever the mode
        """Run a command and exit."""
        extra["standalone_mode"] = False
        try:
            code = super().main(args, prog_name, **extra)
        except click.Abort:
            sys.exit(INTERRUPTED)
        except click.UsageError as error:
            _fail(f"{error.format_message()}{_where_to_look(error)}", error.exit_code)
        except click.ClickException as error:
            _fail(error.format_message(), error.exit_code)
        except TenureError as error:
            given = isinstance(error, InvalidInput) and not isinstance(error, UnknownBackend)
            _fail(str(error), USAGE if given else FAILURE)
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"tenure: {' '.join(message.split())}", err=True)
    sys.exit(code)


def _where_to_look(error: click.UsageError) -> str:
    return f" (see: {error.ctx.command_path} --help)" if error.ctx is not None else ""
