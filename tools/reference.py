"""Write docs/reference/: the commands, the run folder and the Python names, read from the code.

`make docs-reference` runs this. A test fails if the pages differ from what this would write.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import griffe

import hookcli
from hookcli import config
from hookcli.__main__ import build_command
from hookcli.cli.help import EXAMPLES, NOTES, describe_option, name_argument
from hookcli.outside.flags import list_fields
from hookcli.records.statistics import STATISTICS
from hookcli.store import parquet
from hookcli.store.locations import names
from hookcli.verbs.schema import make_schema
from hookcli.verbs.subjects import COMMANDS, SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hookcli.outside.flags import Field

FOLDER = Path(__file__).parent.parent / "docs" / "reference"

# The files of a run folder, the most useful first, and what each file holds.
FILES = {
    names.PAGE: "The page to open first. It works from a disk, without a network.",
    f"{names.GRIDS}/IMAGE/": "One picture per layer call, numbered in the order in which calls start. With `--picture-format` every picture of the run, but those of `maps/`, has an SVG or a PDF beside it.",
    f"{names.SHEETS}/": "One picture per image with the best channels of all layers (`--grids sheet`).",
    f"{names.MAPS}/IMAGE/": "The channels of each picture in `grids/` at the resolution of their layer, for the viewer of the page.",
    names.LAYERS: "One row per layer call and output, over all images of the run.",
    f"{names.RECORDS}/": "One row per image, call and output, in parts that any Parquet reader takes as one table.",
    names.TOP_IMAGES: "Of several images: those that fire each channel most.",
    f"{names.HEAT}/IMAGE/": "With `--heat`: each layer over the image.",
    f"{names.ATTENTION}/IMAGE/": "With `--attention`: pictures and maps of the heads.",
    names.ATTENTION_TABLE: "With `--attention`: one row per call; figures of its heads are separated by `; `.",
    f"{names.CAM}/IMAGE/": "With `--cam`: Grad-CAMs over the image.",
    f"{names.SALIENCY}/": "With `--saliency`: how strongly the score depends on each pixel.",
    names.GRADIENT_FLOW: "Of `hookcli gradients`: the norms of gradients over depth.",
    names.OVERVIEW: "With `--overview`: one picture that fits a slide.",
    f"{names.TENSORS}/": "With `--save`: the tensors, for `hookcli.load_run` and `hookcli export`.",
    names.SKIPPED: "The images that could not be used, and why; only if there are any.",
    f"{names.SEEN}/": "The images as the network saw them.",
    f"{names.THUMBNAILS}/": "Of several images: small pictures for the contact sheet of the page, 32 or more to a file.",
    names.DOCUMENT: "What the page is made of.",
    names.REQUEST: "What was asked. It is written first.",
    names.MANIFEST: "Everything that is needed to repeat the run. It is written last: a run without it is incomplete.",
    f"{names.LOCK}": "Empty: locked while a run writes into the folder."
    ,f"{names.PARTS}/": "The finished chunks of a run that is not complete; deleted at its end.",
}  # fmt: skip
HEAD = "<!-- Written by tools/reference.py from the code; `make docs-reference` writes it again. -->\n\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in render_pages().items():
        file = FOLDER / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def render_pages() -> dict[str, str]:
    """Return the text of each page, by file name."""
    return {
        "commands.md": HEAD + render_commands(),
        "run-folder.md": HEAD + render_run_folder(),
        "python.md": HEAD + render_python(),
    }


# Commands


def render_commands() -> str:
    """Return the help of all commands, with options in tables."""
    lines = ["# Commands", "", "`hookcli COMMAND --help` says the same in the terminal.", ""]
    for subject, commands in SUBJECTS.items():
        lines += [f"**{subject}**", ""]
        lines += [
            f"- [`hookcli {name}`](#hookcli-{name}): {text}" for name, text in commands.items()
        ]
        lines.append("")
    for name in COMMANDS:
        lines += render_command(name, build_command(name))
    for title, rows in NOTES.values():
        lines += [f"## {title.split()[0]}", "", f"{title}.", "", *table(("write", "for"), rows)]
    return "\n".join(lines)


def render_command(name: str, command: Any) -> list[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    summary, _, examples = (command.help or "").partition(EXAMPLES)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f"## hookcli {name}",
        "",
        summary.strip(),
        "",
        "```text",
        f"hookcli {name} {usage}",
        "```",
        "",
    ]
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        if parameter.param_type_name == "argument":
            record = (name_argument(parameter), parameter.help)
        else:
            record = describe_option(parameter, context)
        if parameter.name != "help":
            panel = (
                ""
                if parameter.param_type_name == "argument"
                else parameter.rich_help_panel or "Options"
            )
            panels.setdefault(panel, []).append(record)
    for panel, records in sorted(panels.items(), key=lambda item: item[0] != ""):
        lines += [f"**{panel}**", ""] if panel else []
        lines += table(("option" if panel else "argument", "meaning"), records)
    shown = [line.strip() for line in examples.splitlines() if line.strip()]
    return [*lines, "Examples:", "", "```sh", *shown, "```", ""]


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return a Markdown table whose first column is code."""
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for first, *others in rows:
        cells = [f"`{first}`" if first else "", *others]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*lines, ""]


# Run folder


def render_run_folder() -> str:
    """Return a page of the files of a run folder, and the columns of its tables from the schema."""
    parts = make_schema()["$defs"]
    lines = [
        "# The run folder",
        "",
        "`hookcli inspect` and `hookcli gradients` write one folder per run. The same command writes the "
        "same bytes. Files that are not asked for, or for which there is nothing to say, are left out.",
        "",
        *table(("file", "what it holds"), FILES.items()),
        "JSON files and what commands print as JSON are described by a JSON Schema, "
        "which `hookcli schema` prints.",
        "",
        "## Columns of layers.csv",
        "",
        "They are also the fields of a line of `--format jsonl`.",
        "",
        *table(("column", "meaning"), columns_of(parts["LayerRow"])),
        "## Columns of records.parquet",
        "",
        *table(
            ("column", "type", "meaning"),
            [
                (each.name, str(each.type), each.metadata[b"description"].decode())
                for each in parquet.SCHEMA
            ],
        ),
        "## Columns of attention.csv",
        "",
        *table(("column", "meaning"), columns_of(parts["AttentionRow"])),
        "## manifest.json",
        "",
        *table(("field", "meaning"), columns_of(parts["manifest.json"])),
    ]
    return "\n".join(lines)


def columns_of(part: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the names and descriptions of the fields of a type in the schema."""
    return [(name, field["description"]) for name, field in part["properties"].items()]


# Python


def render_python() -> str:
    package = griffe.load("hookcli", docstring_parser="google", resolve_aliases=True)
    lines = [
        "# Python",
        "",
        "`import hookcli` is light: torch is imported when a name that needs it is first used. "
        "These names are public; everything else may change.",
        "",
        f"Each [command](commands.md) is a function, with the long options as keywords: "
        f"{', '.join(f'`hookcli.{name}`' for name in COMMANDS)}. "
        "[The guide](../guide/python.md#every-command-is-a-function) says what they take and return.",
        "",
    ]
    homes = hookcli._HOMES
    public = [name for name in hookcli.__all__ if name not in COMMANDS]
    functions = [name for name in public if name[0].islower()]
    classes = [name for name in public if name not in functions]
    for name in (*functions, *classes):
        found = package[f"{homes[name]}.{name}"]
        lines += [f"## hookcli.{name}", "", *render_object(found)]
        if found.is_class:
            for member in found.members.values():
                if member.docstring and not member.name.startswith("_"):
                    lines += [f"### {name}.{member.name}", "", *render_object(member)]
    return "\n".join(lines)


def render_object(found: griffe.Object) -> list[str]:
    """Return the signature and the docstring of a function or class as Markdown."""
    lines = []
    if (found.is_function or "dataclass" in found.labels) and "property" not in found.labels:
        lines += ["```text", sign(found), "```", ""]
    sections = list(found.docstring.parsed) if found.docstring else []
    if found.is_class and found.module.path == config.__name__:
        sections = add_helps(list_fields(getattr(config, found.name)), sections)
    for section in sections:
        lines += render_section(section)
    if found.is_class and "Statistics" in map(str, found.bases):
        texts = (f"- `{name}`: {each.text}." for name, each in STATISTICS.items())
        lines[-1:] = [*(text.replace("null", "None") for text in texts), ""]
    return lines


def add_helps(
    fields: Iterable[Field], sections: list[griffe.DocstringSection]
) -> list[griffe.DocstringSection]:
    """Return the sections of a request's docstring, with the help of its fields' options added."""
    kind = griffe.DocstringSectionKind.attributes
    attributes = {
        each.name: each for section in sections if section.kind is kind for each in section.value
    }
    described = []
    for field in fields:
        texts = [attributes[field.name].description] if field.name in attributes else []
        if field.flag is not None:
            name = "" if field.flag.is_argument else f"``{field.flag.name}``: "
            help_text = "" if field.flag.word else field.flag.help
            texts.insert(0, f"{name}{help_text}")
        if texts:
            described.append(
                griffe.DocstringAttribute(field.name, annotation="", description=" ".join(texts))
            )
    others = [section for section in sections if section.kind is not kind]
    index = next((i for i, each in enumerate(others) if each.kind.value == "raises"), len(others))
    return [*others[:index], griffe.DocstringSectionAttributes(described), *others[index:]]


def sign(function: griffe.Function | griffe.Class) -> str:
    """Return a function's signature, one parameter per line if it is long."""
    words, keyword_only = [], False
    for parameter in function.parameters:
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is griffe.ParameterKind.keyword_only and not keyword_only:
            keyword_only = True
            words.append("*")
        if parameter.name.startswith("_"):
            continue
        default = "" if parameter.default is None else f" = {parameter.default}"
        default = re.sub(r"Statistic\(.*\)\.with_default\((\w+)\)", r"\1", default)
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(
            str(parameter.kind.value), ""
        )
        annotation = type_of(parameter, function).replace("Whole", "int").replace("Share", "float")
        words.append(f"{stars}{parameter.name}: {annotation}{default}")
    end = f") -> {function.returns}" if function.is_function else ")"
    line = f"{function.name}({', '.join(words)}{end}"
    return (
        line if len(line) < 90 else f"{function.name}(\n    " + ",\n    ".join(words) + f"\n{end}"
    )


def type_of(parameter: griffe.Parameter, function: griffe.Function | griffe.Class) -> str:
    """Return a parameter's type, without ``Annotated`` and the ``Flag`` in it."""
    annotation = parameter.annotation
    alias = function.module.members.get(getattr(annotation, "name", ""))
    if alias is not None and not alias.is_alias and alias.is_attribute:
        annotation = alias.value
    if getattr(annotation, "canonical_name", "") == "Annotated":
        return str(annotation.slice.elements[0])
    return str(parameter.annotation)


def render_section(section: griffe.DocstringSection) -> list[str]:
    """Return one section of a docstring as Markdown."""
    kind, value = section.kind, section.value
    kinds = griffe.DocstringSectionKind
    if kind is kinds.text:
        return [plain(value), ""]
    if kind in (kinds.parameters, kinds.attributes, kinds.raises):
        title = {
            kinds.parameters: "Arguments",
            kinds.attributes: "Attributes",
            kinds.raises: "Raises",
        }[kind]
        rows = [
            f"- `{getattr(each, 'name', each.annotation)}`: {plain(each.description)}"
            for each in value
        ]
        return [f"{title}:", "", *rows, ""]
    if kind is kinds.examples:
        return ["```text", *(text.rstrip() for _, text in value), "```", ""]
    if kind is kinds.admonition:
        return [f"{section.title}:", "", "```text", value.description.rstrip(), "```", ""]
    return [plain(str(value)), ""]


def plain(text: str) -> str:
    """Return docstring text as Markdown on one line per paragraph."""
    paragraphs = re.split(r"\n\s*\n", text.replace("``", "`").strip())
    return "\n\n".join(" ".join(part.split()) for part in paragraphs)


if __name__ == "__main__":
    main()
