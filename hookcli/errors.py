"""Define errors that end a command and are not bugs, their exit codes, and 'did you mean' hints.

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
├── CompleteError       0, 6, 7   nothing is left to resume; the code is that of the run
├── OutputError               5   a file could not be written, or the folder must not be changed
└── InterruptError          130   Ctrl-C ended a command that can be resumed

The message of an error is one line that names the cause; the hint says what to do or to type. In
both, names of fields and Python functions have backticks, and ``cli/output/wording`` translates
these names into options and commands. This module prints nothing.
"""

from __future__ import annotations

import copyreg
import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

DONE = 0
SKIPPED = 6
FAILED_RULE = 7
INTERRUPTED = 130


def choose_code(*, failed: bool = False, skipped: bool) -> int:
    """Return the exit code: 7 if a rule ``failed``, else 6 if an image was ``skipped``, else 0."""
    if failed:
        return FAILED_RULE
    return SKIPPED if skipped else DONE


class HookcliWarning(UserWarning):
    """A warning that a result may be wrong or incomplete; the command line prints it on stderr.

    Example:
        >>> warnings.filterwarnings("ignore", category=hookcli.HookcliWarning)
    """


class HookcliError(Exception):
    """Base class of all errors that a user can cause or fix.

    Example:
        >>> try:
        ...     run = hookcli.inspect("resnet34", "cat.jpg")
        ... except hookcli.HookcliError as error:
        ...     print(error.message, error.hint)

    Attributes:
        message: one line that names the cause.
        hint: what to do, or to type instead; may be empty.
        exit_code: the code with which the command ends.
    """

    exit_code: int

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        """The hint and added notes, which Python shows below a traceback."""
        hint = [f"hint: {self.hint}"] if self.hint else []
        return [*hint, *vars(self).get("notes", ())]

    def add_note(self, note: str, /) -> None:
        """Add a note below the hint; Python's method would lose it in a copy of ``__notes__``."""
        vars(self).setdefault("notes", []).append(note)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the error without ``__init__``, whose arguments differ between classes."""
        return copyreg.__newobj__, (type(self), self.message), vars(self)  # type: ignore[attr-defined]

    def name_image(self, file: str) -> None:
        """Put the file name before the message, and say in the hint how to skip the image."""
        self.message = f"{file!r}: {self.message}"
        self.hint = "; ".join(filter(None, (self.hint, "`on_error='skip'` leaves it out")))


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
    """The run that ``--resume`` names is complete; the exit code is the run's own."""

    exit_code = DONE


class OutputError(HookcliError):
    """A file or folder could not be written, or exists and must not be changed."""

    exit_code = 5


class InterruptError(HookcliError):
    """Ctrl-C ended a run that ``--resume`` can continue; other runs raise KeyboardInterrupt."""

    exit_code = INTERRUPTED


class Termination(SystemExit):
    """Raised on SIGTERM; a plain SystemExit would look like ``sys.exit()`` in the user's code."""


def hint_near(wanted: str, known: Iterable[str], otherwise: str) -> str:
    """Return ``did you mean A, B?`` with known names similar to ``wanted``, or ``otherwise``."""
    names, short = list(known), wanted.rpartition(":")[2].replace("_", "")  # vit of timm:vit
    close = [each for each in names if len(short) > 2 and short in each.replace("_", "")]
    close += [each for each in names if len(each) > 2 and wanted.startswith(each)]
    close.sort(key=lambda name: (not name.startswith(wanted), len(name)))
    close += difflib.get_close_matches(wanted, names, n=3, cutoff=0.6)
    close = list(dict.fromkeys(close))[:3]
    return f"did you mean {', '.join(close)}?" if close else otherwise


class UnknownModelError(RequestError):
    """No model has this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        hint = hint_near(name.lower(), known, "list them with: `hookcli.models`")
        super().__init__(f"no model is called {name!r}", hint)


class NoLayerMatchedError(RequestError):
    """Nothing in the model matches a pattern that the user gave, such as ``layer4.*``."""

    def __init__(self, form: str, known: Iterable[str], noun: str = "layer") -> None:
        wanted = form.removeprefix("re:").removeprefix("path:").strip("*^$")
        arguments = "MODEL, ops=True" if noun == "operation" else "MODEL"
        listing = f"list them with: `hookcli.layers({arguments})`"
        hint = hint_near(wanted, dict.fromkeys(known), listing)
        if noun == "compared call":
            hint = f"only the layers that `layers` chooses are compared; {hint}"
        super().__init__(f"no {noun} matches {form!r}", hint)


class FilterSyntaxError(RequestError):
    """A text that chooses layers is not well-formed; ``conv[1:4]``, for example, would be."""


class EditSyntaxError(RequestError):
    """An edit is not well-formed; the message names the position of the mistake, counted from 1."""

    def __init__(self, text: str, start: int, what: str, hint: str) -> None:
        super().__init__(f"`edits` {text!r}: at position {start + 1}: {what}", hint)


class NoBoxError(RequestError):
    """The model found no box of the class whose score was requested."""


class NestedTensorError(RequestError):
    """A layer returned a nested tensor, which lacks the single shape that hookcli needs."""

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
