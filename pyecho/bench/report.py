"""Results: the table that ``pyecho bench`` prints, its figure, and files with a table and JSON."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyecho.bench.row import Row, number, spread
from pyecho.tools import info

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SPREAD = (
    "Medians with [lowest, highest] of the rounds, or of the medians of several runs. Ratios are "
    "those of rounds."
)
_COLUMNS = "  {:>9}  {:>9}  {:<20}  {}"


def facts_of(**more: Any) -> dict[str, Any]:
    """Describe the machine, the build and the run; the commit if this folder is a checkout."""
    today = datetime.date.today().isoformat()
    return {**info.collect(), "commit": commit_of(Path.cwd()), "date": today, **more}


def slug(name: object) -> str:
    """Return a name that is fit for a file: "NVIDIA H100 80GB HBM3" is nvidia-h100-80gb-hbm3."""
    return re.sub(r"[^a-z0-9]+", "-", str(name).lower()).strip("-") or "unknown"


def commit_of(checkout: Path) -> str | None:
    """Return the commit of a checkout of pyecho, with "-dirty" if files were changed.

    Files in benchmarks/results do not count, because benchmarks write there. Returns None for other
    folders, which may lie in a repository of another project.
    """
    if not (checkout / ".git").exists() or not (checkout / "csrc" / "core").is_dir():
        return None

    def git(*arguments: str) -> str:  # a checkout of others may name a program as its monitor
        return subprocess.check_output(
            ["git", "-c", "core.fsmonitor=false", *arguments],
            cwd=checkout,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=30,
        ).strip()

    try:
        name = git("describe", "--always")
        tracked = ("--untracked-files=no", "--", ".", ":!benchmarks/results")
        return f"{name}-dirty" if git("status", "--porcelain", *tracked) else name
    except (OSError, subprocess.SubprocessError):
        return None


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
    partial: bool = False
    """Something is left out: the files of a whole run are not replaced."""

    @property
    def name(self) -> str:
        """The names of the files as they are, without their suffixes."""
        return f"{self.stem}-partial" if self.partial else self.stem

    @property
    def rows(self) -> list[Row]:
        """Rows of all sections."""
        return [row for rows in self.sections.values() for row in rows]

    def add(self, section: str, rows: Sequence[Row]) -> None:
        """Append the rows of a measurement."""
        self.sections.setdefault(section, []).extend(rows)

    def note(self, text: str) -> None:
        """Append a remark, such as a measurement that was not possible."""
        self.notes.append(text)

    def as_json(self) -> dict[str, Any]:
        """Return everything in plain types."""
        rows = [
            {"section": section, **row.as_json()}
            for section, rows in self.sections.items()
            for row in rows
        ]
        return {"facts": self.facts, "notes": self.notes, "rows": rows}

    def as_markdown(self) -> str:
        """Return a document with one table for each section."""
        lines = [f"# {self.title}", ""]
        lines += [f"- {name}: {value}" for name, value in self.facts.items()]
        lines += ["", _SPREAD]
        for section, rows in self.sections.items():
            heading = f"| What | Measured | Limit in the same run | {self.ratio_name} | Target |"
            lines += ["", f"## {section}", "", heading, "|---|---|---|---|---|", *map(_line, rows)]
        if self.notes:
            lines += ["", "## Notes", "", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"

    def write(self, folder: Path, **more: Any) -> list[Path]:
        """Write a table and JSON, which also holds `more`; return the paths of both."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{self.name}.md", folder / f"{self.name}.json"]
        paths[0].write_text(self.as_markdown())
        paths[1].write_text(compact({**self.as_json(), **more}))
        return paths

    def as_text(self) -> str:
        """Return every row with its limit, and the measured machine. 60 columns are enough.

        A row has a line for its name, and a line for its numbers.
        """
        lines = [_COLUMNS.format("measured", "limit", "ratio", "target")]
        for row in self.rows:
            limit = "" if row.limit is None else f"{number(row.limit.median)} {row.unit}"
            measured = f"{number(row.measured.median)} {row.unit}"
            lines.append(row.what + (f", against {row.limit_name}" if row.limit_name else ""))
            columns = _COLUMNS.format(measured, limit, spread(row.compared()), row.target)
            lines.append(columns.rstrip())
        facts = self.facts
        commit = f" ({facts['commit']})" if facts["commit"] else ""
        return "\n".join(lines) + (
            "\n\nMedians of rounds in which all took turns; ratios with [lowest, highest].\n"
            f"{self._machine}, {facts['python']}, pyecho {facts['pyecho']}{commit}"
        )

    def draw(self, figure: Figure) -> None:
        """Draw one line for each row that has a ratio."""
        drawn = [(row, ratio) for row in self.rows if (ratio := row.compared()) is not None][::-1]
        figure.set_size_inches(9, 1.2 + 0.42 * len(drawn))
        axes = figure.subplots()
        for height, (row, ratio) in enumerate(drawn):
            axes.plot([ratio.low, ratio.high], [height, height], color="0.6", linewidth=3)
            axes.plot(ratio.median, height, "o", color="C0")
            text = f"  {number(ratio.median)}" + (f"  ({row.target})" if row.target else "")
            axes.text(ratio.high, height, text, va="center", fontsize=8)
        axes.axvline(1.0, color="0.3", linewidth=1)
        axes.set_xscale("log")
        axes.margins(x=0.25)
        names = [f"{row.what}\nagainst {row.limit_name}" for row, _ in drawn]
        axes.set_yticks(range(len(drawn)), names, fontsize=8)
        axes.set_xlabel("ratio to the limit in the same run: median and range of the rounds")
        axes.set_title(self._machine, fontsize=9)

    @property
    def _machine(self) -> str:
        return f"{self.facts['cpu'] or self.facts['system']}, {self.facts['cores']} cores"


def compact(document: Mapping[str, Any]) -> str:
    """Return JSON with a line for each entry of its lists, and numbers of five digits."""
    text = json.dumps(document, allow_nan=False)
    short = json.loads(text, parse_float=lambda number: float(f"{float(number):.5g}"))
    parts = []
    for name, value in short.items():
        entries = value if isinstance(value, list) and value else [value]
        lines = ",\n".join(map(json.dumps, entries))
        parts.append(f'"{name}": ' + (f"[\n{lines}\n]" if entries is value else lines))
    return "{" + ",\n".join(parts) + "}\n"


def _line(row: Row) -> str:
    limit = spread(row.limit, row.unit)
    if row.limit_name:
        limit = f"{row.limit_name}: {limit}" if limit else row.limit_name
    cells = [row.what, spread(row.measured, row.unit), limit, spread(row.compared()), row.target]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
