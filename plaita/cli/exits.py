"""Exit codes, and the one place that turns an error into a message and a code (CONTRACT, DECISIONS 31).

People and scripts get one line about what was wrong; a traceback appears only for a bug of plaita's own.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence

import typer

from plaita.errors import (
    ConfigError,
    FlowDefinitionError,
    InputError,
    PlaitaError,
    UnreachableError,
    WaitTimeoutError,
)

DONE = 0
FAILED = 1
USAGE = 2
UNREACHABLE = 3
TIMED_OUT = 4
BUG = 70
CONFIGURATION = 78
INTERRUPTED = 130
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def code_of(error: PlaitaError) -> int:
    """The exit code of a command that ended with this error."""
    if isinstance(error, (InputError, FlowDefinitionError)):
        return USAGE
    if isinstance(error, UnreachableError):
        return UNREACHABLE
    if isinstance(error, WaitTimeoutError):
        return TIMED_OUT
    return FAILED


def lines_of(error: PlaitaError) -> list[str]:
    """The error in words, a line each for errors that list several faults."""
    if isinstance(error, ConfigError):
        return list(error.faults)
    if isinstance(error, FlowDefinitionError):
        return [str(problem) for problem in error.problems]
    return [str(error) or type(error).__name__]


def complain(program: str, lines: Sequence[str]) -> None:
    """Write messages to stderr; a stderr that is closed or full of a broken pipe is no reason to fail otherwise."""
    for line in lines:
        try:
            print(f"{program}: {line}", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            return


def speak_any_language() -> None:
    """Text that the terminal's encoding cannot show is written as escapes instead of failing the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _abandon_stdout() -> None:
    """Let the interpreter's last flush of stdout succeed, so that it does not replace the exit code."""
    if sys.stdout is sys.__stdout__ and sys.stdout is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def run_app(app: typer.Typer, program: str, arguments: Sequence[str], *, usage: int = USAGE) -> int:
    """Run a command line and answer its exit code; never raises. ``usage`` replaces the code of usage errors."""
    command = typer.main.get_command(app)
    try:
        command.main(args=list(arguments), prog_name=program, standalone_mode=True)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else (DONE if leaving.code is None else FAILED)
        return usage if code == USAGE else code
    except PlaitaError as error:
        complain(program, lines_of(error))
        code = code_of(error)
        return usage if code == USAGE else code
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            traceback.print_exc()
            return BUG
        complain(program, [f"the output cannot be written: {error.strerror}"])
        _abandon_stdout()
        return FAILED
    except Exception:  # noqa: BLE001 - the outermost edge: a bug is shown whole and has a code of its own
        traceback.print_exc()
        return BUG
    return DONE
