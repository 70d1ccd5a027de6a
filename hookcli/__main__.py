"""Run the ``hookcli`` command: welcome text, --version, subcommands; errors become exit codes."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import signal
import sys
import warnings
from errno import ENAMETOOLONG, ENOSPC
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from hookcli import errors
from hookcli.cli import memory
from hookcli.cli.help import WIDTH, PanelCommand
from hookcli.cli.output import console
from hookcli.cli.output.wording import to_words
from hookcli.verbs.subjects import COMMANDS, SUBJECTS

if TYPE_CHECKING:
    from types import TracebackType

# Typer has its own copy of click; this is the base class of the errors of that copy.
_ClickError: Any = typer.BadParameter.__bases__[0].__bases__[0]

_WELCOME = """\
hookcli shows what a PyTorch vision model computed. Three commands to start with:

  hookcli layers resnet18               what layers does the model have?
  hookcli inspect resnet18 photo.jpg    what does each layer make of a photo?
  hookcli compare resnet18 photo.jpg --against dtype=bfloat16
                                        which layer differs first?

All commands: hookcli --help
"""


@functools.cache
def build_command(name: str) -> Any:
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    from hookcli.cli.command import make_command  # takes 50 ms, which hookcli --help does not need

    command = make_command(getattr(import_module(f"hookcli.verbs.{name}"), name).verb)
    settings = {"max_content_width": WIDTH}
    alone.command(name, cls=PanelCommand, short_help=COMMANDS[name], context_settings=settings)(
        command
    )
    return typer.main.get_command(alone)


class _Group(TyperGroup):
    """The command ``hookcli``, which lists its subcommands without importing their modules."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        return build_command(cmd_name) if cmd_name in COMMANDS else None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for subject, commands in SUBJECTS.items():
            with formatter.section(subject):
                formatter.write_dl(list(commands.items()))
        TyperCommand.format_options(self, ctx, formatter)  # type: ignore[arg-type]  # no commands
        formatter.write("\nThe options of a command: hookcli COMMAND --help\n")


app = typer.Typer(
    cls=_Group,
    help="See what a PyTorch vision model computed: feature maps and statistics of every layer.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib import metadata  # takes 20 ms, which hookcli --help does not need

        console.print_data(f"hookcli {metadata.version('hookcli')}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _common(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        console.print_data(_WELCOME)


def main() -> None:
    memory.collect_rarely()
    # Pillow usually allocates blocks of 16 MB, which glibc may keep when a large picture is freed.
    # glibc maps each block of over 32 MB on its own, and returns it to the system (mallopt(3)).
    os.environ.setdefault("PILLOW_BLOCK_SIZE", "64m")
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the stream was closed before hookcli started
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    console.keep_stdout()
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # warnings of libraries; hookcli prints its own on stderr
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=console.FIT, newline="\n")
    try:
        code = _run()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C no longer changes the exit code
    except KeyboardInterrupt:  # a late Ctrl-C, or a second one while the first was reported
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = _report_interrupt()
    except BaseException:
        sys.excepthook = _report_bug  # only now, because Typer installs its own hook
        raise
    console.close_stdout()
    # after a Ctrl-C in code run by exec(), sys.exit would end the process by SIGINT
    memory.end_process(code)


def _report_bug(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    sys.__excepthook__(kind, error, trace)
    console.print_error("this is a bug in hookcli", "please report it with the lines above")


def _report_error(code: int, message: str, hint: str = "") -> int:
    """Print an error to stderr. If stdout must be JSON and is empty, print the error there, too."""
    message, hint = to_words(message), to_words(hint)
    console.print_error(message, hint)
    words = sys.argv[1:]
    given = [
        word.partition("=")[2] or following
        for word, following in zip(words, [*words, ""][1:], strict=True)
        if word.partition("=")[0] == "--format"
    ]
    output_format = given[-1] if given else ""
    if output_format in ("json", "jsonl") and console.is_unused():
        from hookcli.cli.output.table import print_error_document

        with contextlib.suppress(errors.OutputError):  # the first error counts
            print_error_document(code, message, hint, output_format)
    return code


def _report_interrupt() -> int:
    return _report_error(errors.INTERRUPTED, "interrupted")


def _run() -> int:
    stdout = sys.stdout
    console.begin_data()
    try:
        code = app(args=sys.argv[1:], standalone_mode=False)
    except errors.HookcliError as error:
        return _report_error(error.exit_code, error.message, error.hint)
    except _ClickError as error:
        # Typer's messages may have line breaks, and it puts words before the text of a ValueError.
        message = " ".join(error.format_message().split()).replace(": Value error, ", ": ", 1)
        return _report_error(errors.RequestError.exit_code, *_explain(error, message))
    except OSError as error:
        if error.errno == ENAMETOOLONG:
            return _report_error(errors.RequestError.exit_code, "the name of a file is too long")
        if error.errno != ENOSPC:
            raise
        return _report_error(errors.OutputError.exit_code, "cannot write to stdout: no space left")
    except (KeyboardInterrupt, typer.Abort):
        return _report_interrupt()
    except SystemExit as leave:
        # Typer exits with 1 when `| head` has closed the pipe
        closed_pipe = leave.code == 1 and sys.stdout is not stdout
        return 0 if closed_pipe else int(leave.code or 0)
    if code == errors.INTERRUPTED:  # Typer caught the interrupt
        return _report_interrupt()
    return code if isinstance(code, int) else 0


def _explain(error: Any, message: str) -> tuple[str, str]:
    from hookcli.cli import guesses

    kind, words = type(error).__name__, sys.argv[1:]
    command = words[0] if words[:1] and words[0] in COMMANDS else ""
    guess = ""
    if kind == "NoSuchOption":
        message = f"No such option: {error.option_name}"
        options = guesses.list_options(map(build_command, COMMANDS))
        guess = guesses.guess_option(error.option_name, command, options)
    elif words and not command and not words[0].startswith("-"):
        message = f"No such command: {words[0]}"
        guess = guesses.guess_command(words, COMMANDS)
    elif command:
        guess = guesses.guess_words(words, message)
    see = " ".join(filter(None, ["see: hookcli", command, "--help"]))
    return message, "; ".join(filter(None, [guess, see]))


if __name__ == "__main__":
    main()
