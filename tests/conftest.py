"""Settings of the whole test-suite."""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest

# `from reference_model import ...` in any test; pytest's importlib mode adds no paths of its own.
sys.path.insert(0, str(Path(__file__).parent / "support"))

# A shell starts background jobs with Ctrl-C ignored, and programs started here would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

STRESS = os.environ.get("PYECHO_STRESS", "") not in ("", "0")

# Tests there start programs, or take seconds. In other folders a file or a test says so itself.
SLOW_FOLDERS = {
    "bench",
    "demo",
    "docs",
    "gpu",
    "interrupts",
    "lifetimes",
    "threads",
    "typing",
}

try:
    from hypothesis import HealthCheck, Phase, settings
except ImportError:
    pass
else:
    common = {
        "deadline": None,
        "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    }
    fixed = {"derandomize": True, "database": None, **common}
    settings.register_profile("ci", max_examples=150, **fixed)
    # faults.py asks only whether a test fails.
    settings.register_profile(
        "faults", max_examples=150, phases=[Phase.explicit, Phase.generate], **fixed
    )
    settings.register_profile("check", max_examples=20, **fixed)
    # Failing examples stay in .hypothesis, and come first the next time.
    settings.register_profile("night", max_examples=5000, print_blob=True, **common)
    settings.load_profile("night" if STRESS else "ci")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Note failures, for fixtures that clean up (outcome.py)."""
    from outcome import FAILED

    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


def pytest_collection_modifyitems(config, items):
    """Mark what is slow. Leave out stress tests but with `-m stress` or PYECHO_STRESS=1."""
    for item in items:
        if item.path.relative_to(Path(__file__).parent).parts[0] in SLOW_FOLDERS:
            item.add_marker(pytest.mark.slow)
    if STRESS or "stress" in (config.getoption("-m") or ""):
        return
    skip = pytest.mark.skip(reason="a stress test: set PYECHO_STRESS=1 or pass -m stress")
    for item in items:
        if "stress" in item.keywords:
            item.add_marker(skip)


def pytest_collection_finish():
    """Leave everything imported out of later garbage collections, of which tests ask for many."""
    gc.collect()
    gc.freeze()
