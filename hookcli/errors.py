"""Every way a run can end that is not a bug, with the exit code it ends with.

HookcliError
├── RequestError              2   the request cannot be met as it was made
│   ├── UnknownModelError
│   ├── NoLayerMatchedError
│   ├── FilterSyntaxError
│   ├── EditSyntaxError
│   ├── NoBoxError
│   ├── NestedTensorError
│   └── DeviceError
├── NoImageError              3   no image could be used
├── ModelError                4   the model could not be loaded or run
│   ├── WeightsError
│   ├── EnvironmentMismatchError
│   └── ForwardError
├── CompleteError             0   nothing is left to resume
├── OutputError               5   a file could not be written, or the folder is protected or in use
└── InterruptError          130   Ctrl-C ended a command that can be resumed

The message is one line that names the thing; the hint says what to do or to type. Both use the
words of Python, with fields of requests and functions in backticks, which ``cli/output/wording``
translates into options and commands. Nothing here prints.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable

DONE = 0
SKIPPED = 6
FAILED_RULE = 7
INTERRUPTED = 130


class HookcliError(Exception):
    """Base class of all errors that a user can cause or fix.

    Example:
        >>> try:
        ...     result = hookcli.inspect_images(config)
        ... except hookcli.HookcliError as error:
        ...     print(error.message, error.hint)

    Attributes:
        message: one line that names the cause.
        hint: what to do, or to type instead; may be empty.
        exit_code: the code with which the command ends.
    """

    exit_code: ClassVar[int]

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """Let processes send the error to each other, whatever arguments its ``__init__`` takes."""
        return _make_again, (type(self), self.message, self.hint)

    def name_image(self, file: str) -> None:
        """Name the image that the error is about, and add a hint on how to leave it out."""
        self.message = f"{file!r}: {self.message}"
        self.hint = "; ".join(filter(None, (self.hint, "`on_error='skip'` leaves it out")))


def _make_again(kind: type[HookcliError], message: str, hint: str) -> HookcliError:
    error = kind.__new__(kind)
    HookcliError.__init__(error, message, hint)
    return error


class RequestError(HookcliError):
    """The request cannot be met as the user made it."""

    exit_code = 2


class NoImageError(HookcliError):
    """No image could be used."""

    exit_code = 3


class ModelError(HookcliError):
    """The model could not be loaded or run."""

    exit_code = 4


class CompleteError(HookcliError):
    """There is nothing left to resume."""

    exit_code = 0


class OutputError(HookcliError):
    """A file could not be written, or the run folder is protected or in use."""

    exit_code = 5


class InterruptError(HookcliError):
    """Ctrl-C ended a command that can be resumed; Python functions raise KeyboardInterrupt."""

    exit_code = INTERRUPTED


class Termination(SystemExit):
    """A signal ends the process; foreign code that calls ``sys.exit()`` raises no such error."""


def hint_near(wanted: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint with up to three names similar to ``wanted``, or else ``otherwise``."""
    close = difflib.get_close_matches(wanted, list(known), n=3, cutoff=0.5)
    return f"did you mean {', '.join(close)}?" if close else otherwise


class UnknownModelError(RequestError):
    """No model has this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        hint = hint_near(name.lower(), known, "list them with: `list_catalog`")
        super().__init__(f"no model is called {name!r}", hint)


class NoLayerMatchedError(RequestError):
    """A form of the layer filter matched nothing in the model, or a glob matched no parameter."""

    def __init__(self, form: str, known: Iterable[str], noun: str = "layer") -> None:
        wanted = form.removeprefix("re:").removeprefix("path:").strip("*^$")
        arguments = "MODEL, operations=True" if noun == "operation" else "MODEL"
        listing = f"list them with: `survey_layers({arguments})`"
        hint = hint_near(wanted, dict.fromkeys(known), listing)
        super().__init__(f"no {noun} matches {form!r}", hint)


class FilterSyntaxError(RequestError):
    """A form of the layer filter cannot be read."""


class EditSyntaxError(RequestError):
    """An edit cannot be read.

    Args:
        text: the edit as the user wrote it.
        start: index of the error in ``text``, from 0; the message counts from 1.
        what: what is wrong at this position.
        hint: what to write instead.
    """

    def __init__(self, text: str, start: int, what: str, hint: str) -> None:
        super().__init__(f"`edits` {text!r}: at position {start + 1}: {what}", hint)


class NoBoxError(RequestError):
    """The model found no box of the class whose score was requested."""


class NestedTensorError(RequestError):
    """A layer returned a nested tensor, whose shape hookcli needs but cannot know."""

    def __init__(self) -> None:
        super().__init__("a layer returned a nested tensor, which has no shape of its own")


class DeviceError(RequestError):
    """The requested device does not exist on this machine."""


class WeightsError(ModelError):
    """The requested weights could not be loaded, or do not fit the model."""


class EnvironmentMismatchError(ModelError):
    """The installed versions of torch and torchvision are incompatible."""


class ForwardError(ModelError):
    """The model raised an exception while it ran."""
