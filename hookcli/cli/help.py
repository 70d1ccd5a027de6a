"""The help of a command, with its options in panels; without Rich, whose import takes 70 ms."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class PanelCommand(TyperCommand):
    """A command whose help shows its options in panels, in the order of the command's signature."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then each panel, then what belongs to none."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        others: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            panel = getattr(parameter, "rich_help_panel", None)
            if parameter.param_type_name == "argument":
                panels["Arguments"].append(record)
            elif panel is None:
                others.append(record)
            else:
                panels.setdefault(panel, []).append(record)
        for title, records in (*panels.items(), ("Options", others)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
