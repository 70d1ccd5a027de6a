"""Make a Typer command that runs a verb such as ``inspect``, and prints its messages and result."""

from __future__ import annotations

import sys
from contextlib import contextmanager, redirect_stdout
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hookcli import errors
from hookcli.cli import memory
from hookcli.cli.completion import complete_model, save_model_names
from hookcli.cli.output import console
from hookcli.cli.output.wording import to_words
from hookcli.outside.flags import Field, Flag
from hookcli.verbs.call import Progress, VerbListener
from hookcli.verbs.keywords import Option, Verb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hookcli.verbs.call import Note


def make_command(verb: Verb) -> Callable[..., int]:
    parameters = [*map(make_parameter, verb.options), *map(make_parameter, _list_shown(verb))]

    def command(**values: Any) -> int:
        from hookcli.cli.output.table import BRIEF, print_outcome  # takes 20 ms, not for --help

        output_format = values.pop("format", None) or next(iter(verb.formats), "")
        quiet = bool(values.pop("quiet", False))
        given = {name: value for name, value in values.items() if value not in (None, [])}
        listener = TerminalListener(quiet=quiet, wants_rows=output_format not in BRIEF)
        try:
            outcome = verb.run(given, listener)
            print_outcome(outcome, output_format)
        except errors.CompleteError as error:
            console.say(to_words(error.message), quiet=quiet)
            return error.exit_code
        finally:
            listener.print_rest()
        return int(outcome.exit_code)

    command.__name__, command.__doc__ = verb.name, verb.function.__doc__
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _list_shown(verb: Verb) -> Iterator[Option]:
    panel = "Output" if any(each.panel for each in verb.options) else ""
    if words := verb.formats:
        flag = Flag("--format FORMAT", f"On stdout: {', '.join(words[:-1])} or {words[-1]}.")
        yield Option(0, Field("format", Literal[words], words[0], flag, None), flag, panel)
    asked = "what --format asks for" if words else "the result"
    flag = Flag("-q --quiet", f"Print only warnings, errors and {asked}.")
    yield Option(0, Field("quiet", bool, False, flag, None), flag, panel)


def make_parameter(option: Option) -> Parameter:
    flag, kind = option.flag, option.field.kind
    if flag.many or flag.read is not None or kind is Any:
        kind = list[str] if flag.many else str
    if flag.is_argument:
        completed = complete_model if flag.name == "model" else None
        made = typer.Argument(metavar=flag.metavar, help=flag.help, autocompletion=completed)
    else:
        made = typer.Option(
            *flag.names,
            metavar=flag.metavar,
            help=flag.help + option.field.default_text,
            min=flag.at_least,
            max=option.at_most,
            rich_help_panel=option.panel or None,
        )
    default = Parameter.empty if option.field.is_required else None
    kind = Annotated[kind, made, flag]
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


class TerminalListener(VerbListener):
    writes = starts_workers = True

    def __init__(self, *, quiet: bool, wants_rows: bool) -> None:
        super().__init__()
        self._quiet, self.wants_rows = quiet, wants_rows
        self._rest: list[Note] | None = None  # notes to print below the outcome; None: print now

    @property
    def shows_downloads(self) -> bool:
        return not self._quiet and sys.stderr.isatty()

    def hear(self, note: Note) -> None:
        if self._rest is not None:
            self._rest.append(note)
            return
        text = to_words(note.text)
        if note.level == "warning":
            console.warn(text)
        elif note.level == "failure":
            console.print_error(text)
        else:
            console.say(text, quiet=self._quiet and note.level != "answer")

    def begin(self) -> None:
        memory.collect_as_usual()
        self.listed()

    def end(self) -> None:
        self._rest = []

    def print_rest(self) -> None:
        rest, self._rest = self._rest or [], None
        for note in rest:
            self.hear(note)

    def listed(self, source: str | None = None) -> None:
        save_model_names(source)

    def count(self, total: int, noun: str, *, is_long: bool) -> Progress:
        from hookcli.cli.output.progress import Bar  # takes 70 ms

        return Bar(total, noun, is_shown=is_long and not self._quiet, quiet=self._quiet)

    @contextmanager
    def no_data(self) -> Iterator[None]:
        with redirect_stdout(sys.stderr):
            yield
