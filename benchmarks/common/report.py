"""The report of a benchmark, as JSON and as a table."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyecho.bench.row import Row, spread


@dataclass
class Report:
    """All results of a run."""

    title: str
    stem: str
    """The names of a whole run's files, without their suffixes."""
    facts: dict[str, Any]
    sections: dict[str, list[Row]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    ratio_name: str = "Ratio"
    """The heading of the ratios, if they are not ratios to the limit."""
    runs: int = 1
    """Number of runs."""
    partial: bool = False
    """Something is left out: the files of a whole run are not replaced."""

    @property
    def name(self) -> str:
        """The names of the files as they are, without their suffixes."""
        return f"{self.stem}-partial" if self.partial else self.stem

    def add(self, section: str, rows: list[Row]) -> None:
        """Append the rows of a measurement."""
        self.sections.setdefault(section, []).extend(rows)

    def note(self, text: str) -> None:
        """Append a remark, such as a measurement that was not possible."""
        self.notes.append(text)

    def as_json(self) -> dict[str, Any]:
        """Return everything in plain types."""
        return {
            "facts": self.facts,
            "notes": self.notes,
            "rows": [
                {"section": section, **row.as_json()}
                for section, rows in self.sections.items()
                for row in rows
            ],
        }

    def as_markdown(self) -> str:
        """Return a document with one table for each section."""
        lines = [f"# {self.title}", ""]
        lines += [f"- {name}: {value}" for name, value in self.facts.items()]
        lines += ["", self._spread()]
        for section, rows in self.sections.items():
            lines += ["", f"## {section}", ""]
            lines.append(
                f"| What | Measured | Limit in the same run | {self.ratio_name} | Target |"
            )
            lines.append("|---|---|---|---|---|")
            lines += [_line(row) for row in rows]
        if self.notes:
            lines += ["", "## Notes", "", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"

    def _spread(self) -> str:
        if self.runs == 1:
            return "Medians of the rounds with [lowest, highest]; ratios are those of rounds."
        return (
            f"Medians of {self.runs} runs with [lowest, highest]; each run counts with the median "
            "of its rounds, and ratios are those of rounds."
        )

    def write(self, folder: Path) -> list[Path]:
        """Write both files and return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        as_json, as_markdown = folder / f"{self.name}.json", folder / f"{self.name}.md"
        as_json.write_text(json.dumps(self.as_json(), indent=1) + "\n")
        as_markdown.write_text(self.as_markdown())
        return [as_json, as_markdown]


def slug(name: str) -> str:
    """Return a name that is fit for a file: "NVIDIA H100 80GB HBM3" is nvidia-h100-80gb-hbm3."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"


def _line(row: Row) -> str:
    limit = spread(row.limit, row.unit)
    if row.limit_name:
        limit = f"{row.limit_name}: {limit}" if limit else row.limit_name
    cells = [row.what, spread(row.measured, row.unit), limit, spread(row.compared()), row.target]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
