"""The demonstration behind ``pyecho demo``: slow source, fast trainer, echoing in between."""
