"""Loaders on devices: pinned memory, uploads, and echoing on the device."""
