"""A GPU and its link, and the state in which a measurement leaves them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch

_LINK = "pcie.link.gen.current,pcie.link.width.current,pcie.link.gen.max"


def _asked(device: torch.device, names: str) -> list[str]:
    """Return what nvidia-smi says of a device; nothing where it is missing or fails."""
    identity = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    if shutil.which("nvidia-smi") is None or identity is None:
        return []
    command = ["nvidia-smi", f"--id=GPU-{identity}", f"--query-gpu={names}"]
    try:
        ended = subprocess.run(
            [*command, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [part.strip() for part in ended.stdout.strip().split(",")]


def facts(device: torch.device) -> dict[str, Any]:
    """Describe the link: generation and lanes while it works, and the NUMA node."""
    busy = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
    for _ in range(4):  # an idle link is slower
        busy.to(device, non_blocking=True)
    link = _asked(device, _LINK)
    [bus] = _asked(device, "pci.bus_id") or [""]
    node = Path(f"/sys/bus/pci/devices/{bus[4:].lower()}/numa_node")  # of eight digits there
    return {
        "PCIe": f"generation {link[0]} of {link[2]}, {link[1]} lanes" if link else "unknown",
        "NUMA node": node.read_text().strip() if bus and node.exists() else "unknown",
    }


def state(device: torch.device) -> str:
    """Describe memory and clocks after a measurement."""
    peak = f"{torch.cuda.max_memory_allocated(device) / 1e9:.2f} GB of device memory at most"
    clocks = _asked(device, "clocks.sm,clocks.mem,temperature.gpu")
    return peak + (", clocks {} and {}, {} degrees".format(*clocks) if clocks else "")
