"""The results as JSON and as a document with one table for each figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paper.experiments import FIGURES
from paper.summary import UNITS, Mark
from pyecho.bench.report import compact
from pyecho.bench.row import number, spread
from pyecho.bench.sampling import Sample


def as_json(facts: dict[str, Any], marks: Sequence[Mark], said: Sequence[str]) -> dict[str, Any]:
    """Return everything in plain types."""
    return {"facts": facts, "findings": list(said), "marks": [_plain(mark) for mark in marks]}


def as_markdown(
    facts: dict[str, Any], marks: Sequence[Mark], said: Sequence[str], figures: dict[str, Path]
) -> str:
    """Return a document that shows the figures, which lie beside it."""
    lines = ["# The paper's experiments, with pyecho", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += [
        "",
        "Medians of the seeds with [lowest, highest]; ratios are taken seed by seed. Fresh "
        "examples are those read from the source, `stats().fresh`, when the target was crossed, "
        "with what pyecho had read ahead by then; used are those of which training had seen a use. "
        "The learning rate of every condition was chosen with another seed, among those in the "
        "last column, by the examples used to the target (for quality, by what is measured); a "
        "trial is stopped once it has used more than the best one so far, and counts as worse.",
        "",
        *(f"- {sentence}" for sentence in said),
    ]
    for figure, title in FIGURES.items():
        chosen = [mark for mark in marks if mark.entry.figure == figure]
        if not chosen:
            continue
        heading = f"{f'Fig. {figure}' if figure.isdecimal() else figure.capitalize()}: {title}"
        lines += ["", f"## {heading}", ""]
        if figure in figures:
            lines += [f"![{heading}]({figures[figure].name})", ""]
        lines += _table(figure, chosen)
    return "\n".join(lines) + "\n"


def _table(figure: str, marks: Sequence[Mark]) -> list[str]:
    heads = ["Workload", "Condition", "e", "Batch", "Buffer", "Fresh examples", UNITS[figure]]
    extras = {
        "4": {"Seconds": "seconds", "Times fewer fresh": "fewer", "R": "R"},
        "7": {"Of those read": "read"},
        "drift": {"Seconds": "seconds"},
    }.get(figure, {} if figure == "quality" else {"Of those used": "used"})
    heads += [*extras, "The paper", "Learning rate", "Rates that were tried"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for mark in marks:
        of = mark.entry.condition
        measured = spread(mark.measured) if mark.measured else mark.missed
        tried = ", ".join(f"{rate:g}: {_cost(cost)}" for rate, cost in mark.tried.items())
        cells = [
            of.workload,
            mark.name,
            str(of.factor),
            str(of.batch_size),
            f"{of.shuffle_buffer}{' batches' if of.variant == 'batch' else ''}",
            spread(mark.fresh),
            measured,
            *(spread(mark.more.get(name)) for name in extras.values()),
            "" if mark.entry.paper is None else f"{mark.entry.paper:g}",
            f"{mark.rate:g}",
            tried,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _cost(cost: float) -> str:
    return "worse" if math.isinf(cost) else number(cost)


def _plain(mark: Mark) -> dict[str, Any]:
    entry = mark.entry
    return {
        "figure": entry.figure,
        "series": entry.series,
        "x": entry.x,
        "what": mark.name,
        "condition": vars(entry.condition),
        "goal": vars(entry.goal),
        "unit": UNITS[entry.figure],
        "paper": entry.paper,
        "runs": mark.runs,
        "reached": mark.reached,
        "measured": _values(mark.measured),
        "fresh": _values(mark.fresh),
        **{name: _values(sample) for name, sample in mark.more.items()},
        "rate": mark.rate,
        "tried": {f"{rate:g}": None if math.isinf(c) else c for rate, c in mark.tried.items()},
    }


def _values(sample: Sample | None) -> list[float] | None:
    return None if sample is None else list(sample.values)


def write(folder: Path, stem: str, document: dict[str, Any], markdown: str) -> list[Path]:
    """Write both files and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{stem}.json", folder / f"{stem}.md"]
    paths[0].write_text(compact(document))
    paths[1].write_text(markdown)
    return paths
