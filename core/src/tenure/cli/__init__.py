"""The command ``tenure``."""

import sys

_NEEDED = {"click", "rich"}


def main() -> int:
    """Run the command; without its libraries, say in one line what to install."""
    try:
        from tenure.cli.commands import tenure
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        sys.stderr.write(f'tenure: the command line needs {missing}; run: pip install "tenure[cli]"\n')
        return 1
    tenure.main(prog_name="tenure")
    return 0
