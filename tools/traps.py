"""Write docs/traps.md: what misleads hooks in each of torchvision's models.

The facts are those of `hookcli layers`. `make traps` runs this in a few minutes. It downloads
nothing, since the traps do not depend on the weights.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

import torchvision

from hookcli.config import ModelRequest
from hookcli.hooks.layers import list_layers
from hookcli.networks.catalog import list_catalog
from hookcli.networks.load import build_skeleton
from hookcli.passes.survey import survey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookcli.records.rows import SurveyRow

PAGE = Path(__file__).parent.parent / "docs" / "traps.md"
HEADER = (
    "model",
    "task",
    "modules",
    "written over",
    "convolutions among them",
    "called again",
    "never called",
    "several outputs",
    "channels last",
    "leading axis not N",
)
INTRO = """# What torchvision's models do to hooks

Made by `make traps` from `hookcli layers MODEL` with torchvision {version}; counts are modules.

- **written over**: another module, or an addition in a block, writes over the output after the hook
  has seen it. An output kept with `output.detach()` is then wrong; hookcli finishes in the hook.
- **called again**: the module runs more than once in a forward, so results keyed by name overwrite
  each other; hookcli gives every call its own id (`layer1.0.relu`, `layer1.0.relu#1`).
- **never called**: a hook on it never fires, and says nothing; hookcli lists it with the reason.
- **several outputs**: a tuple, list or dict; hookcli gives each tensor its key.
- **channels last**: axis 1 is not the channels; hookcli states the layout.
- **leading axis not N**: a batch cannot be cut into images along it; hookcli runs such models one
  image at a time, or shows the tensor as every image's.

{clean} of {total} models are free of all of these.
"""


def main() -> None:
    lines = []
    clean = 0
    for entry in list_catalog():
        counts = count_traps(entry.name)
        clean += not any(counts[1:])
        lines.append((f"`{entry.name}`", entry.task.replace("_", " "), *map(str, counts)))
        print(*lines[-1], flush=True)
        gc.collect()
    intro = INTRO.format(
        version=torchvision.__version__.partition("+")[0], clean=clean, total=len(lines)
    )
    table = [HEADER, ("---",) * len(HEADER), *lines]
    rows = "".join(f"| {' | '.join(line)} |\n" for line in table)
    PAGE.write_text(f"{intro}\n{rows}", encoding="utf-8")


def count_traps(name: str) -> tuple[int, ...]:
    """Return the number of modules, and the number of modules with each trap of ``HEADER``."""
    loaded = build_skeleton(ModelRequest(name))
    layers = list_layers(loaded.module)
    rows = survey(loaded.module, layers, loaded.info.input_shape, loaded.inputs).rows
    written = having(rows, lambda trap: trap.startswith("written over"))
    convs = {row.module_path for row in rows if row.module_type.startswith("Conv")}
    return (
        len(layers),
        len(written),
        len(written & convs),
        len({row.module_path for row in rows if row.calls > 1}),
        len(having(rows, lambda trap: trap.startswith("not called"))),
        len(having(rows, lambda trap: trap.endswith(" outputs"))),
        len(having(rows, lambda trap: trap == "channels last")),
        len(having(rows, lambda trap: trap.startswith("leading axis"))),
    )


def having(rows: Sequence[SurveyRow], is_wanted: Callable[[str], bool]) -> set[str]:
    """Return the paths of the modules with a trap that ``is_wanted``."""
    return {row.module_path for row in rows if any(is_wanted(trap) for trap in row.traps)}


if __name__ == "__main__":
    main()
