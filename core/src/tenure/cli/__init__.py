"""The command ``tenure``."""

import sys

_NEEDED = {"click", "rich"}


def main() -> int:
    """Run the command; without its libraries, say in one line what to install."""
    try:
        from tenure.cli.commands import tenure
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        sys.stderr.write(f'tenure: the command line needs {error.name}; run: pip install "tenure[cli]"\n')
        return 1
    tenure.main(prog_name="tenure")
    return 0
