"""The ``hookcli`` command: its subcommands, and how an error becomes an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from errno import ENOSPC
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookcli import __version__, errors
from hookcli.cli import console
from hookcli.cli.ablate import ablate
from hookcli.cli.compare import compare
from hookcli.cli.diff import diff
from hookcli.cli.export import export
from hookcli.cli.golden import golden
from hookcli.cli.gradients import gradients
from hookcli.cli.inspect import inspect
from hookcli.cli.layers import layers
from hookcli.cli.models import models
from hookcli.cli.report import report
from hookcli.cli.schema import schema

if TYPE_CHECKING:
    from types import TracebackType

# Typer carries its own copy of click; these are its classes, without importing it.
_ClickError: Any = typer.BadParameter.__bases__[0].__bases__[0]

app = typer.Typer(
    help="See what a PyTorch vision model computed: feature maps and statistics of every layer.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.command()(inspect)
app.command()(gradients)
app.command()(ablate)
app.command()(diff)
app.command()(compare)
app.command()(golden)
app.command()(layers)
app.command()(models)
app.command()(report)
app.command()(export)
app.command()(schema)


def _print_version(asked: bool) -> None:
    if asked:
        console.print_data(f"hookcli {__version__}\n")
        raise typer.Exit


@app.callback()
def _common(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line and leave with its exit code."""
    # Of pieces of Pillow's usual 16 MB glibc may keep those of a large picture when it is freed;
    # pieces of over 32 MB are always mapped on their own, and go back to the system (mallopt(3)).
    os.environ.setdefault("PILLOW_BLOCK_SIZE", "64m")
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed before we came
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    console.keep_stdout()
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # of the libraries; ours are lines on stderr
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    ended = False
    try:
        code = _run()
        ended = True
    finally:
        if not ended:
            sys.excepthook = _report_bug  # only now: Typer puts in its own
    console.close_stdout()
    if code == errors.INTERRUPTED:
        # Python ends by SIGINT instead when the interrupt came inside exec() of text, as of a named tuple
        os._exit(code)
    sys.exit(code)


def _report_bug(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    sys.__excepthook__(kind, error, trace)
    console.print_error("this is a bug in hookcli", "please report it with the lines above")


def _run() -> int:
    stdout = sys.stdout
    try:
        code = app(args=sys.argv[1:] or ["--help"], standalone_mode=False)
    except errors.HookcliError as error:
        console.print_error(error.message, error.hint)
        return error.exit_code
    except _ClickError as error:
        message = " ".join(error.format_message().split())  # Typer's can have lines and tabs
        console.print_error(message, "see: hookcli --help, hookcli COMMAND --help")
        return errors.RequestError.exit_code
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        console.print_error("cannot write to stdout: no space left")
        return errors.OutputError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = errors.INTERRUPTED
    except SystemExit as leave:
        closed_pipe = leave.code == 1 and sys.stdout is not stdout  # Typer's answer to `| head`
        return 0 if closed_pipe else int(leave.code or 0)
    if code == errors.INTERRUPTED:
        resumes = sys.argv[1:2] in (["inspect"], ["gradients"])
        hint = "what is complete stays; --resume goes on with a long run"
        console.print_error("interrupted", hint if resumes else "")
    return code if isinstance(code, int) else 0


if os.name == "nt":  # pragma: no cover
    raise SystemExit("hookcli needs Linux or macOS")
