"""Picture of a loader in a notebook: its stages, and its statistics."""

from __future__ import annotations

from html import escape

from pyecho.config import Config
from pyecho.stats import EchoStats


def html_of(title: str, source: str, config: Config, stats: EchoStats) -> str:
    """Return the stages in a row, and the statistics; `source`: the name of its type."""
    items = "items" if config.batch_size is None else "examples"
    most = f"{'up to ' if config.adaptive else ''}{config.most_uses:g} uses"
    stages = {
        "source": (source, f"{stats.read} {items} read"),
        "pool": (f"holds {config.capacity}", f"{stats.occupancy:.0%} full"),
        "batches": (f"{most} of each", f"{stats.batches} so far"),
    }
    cells = "<td>\N{LONG RIGHTWARDS ARROW}</td>".join(
        f"<td><b>{name}</b><br>{'<br>'.join(map(escape, lines))}</td>"
        for name, lines in stages.items()
    )
    return (
        f"<div><code>{escape(title)}</code><table><tr>{cells}</tr></table>"
        f"<pre>{escape(str(stats))}</pre></div>"
    )
