"""Measurements behind ``pyecho bench``, each beside its limit in the same run."""
