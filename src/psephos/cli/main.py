"""Where the command `psephos` starts: its version is told before any other library is imported."""

import sys

from psephos.version import __version__


def main() -> None:
    """The `psephos` command."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"psephos {__version__}\n")
        return
    from psephos.cli.app import main as run_command
    from psephos.release.preflight.memory import limit_memory

    limit_memory()
    run_command()


if __name__ == "__main__":
    main()
