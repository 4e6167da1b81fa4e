"""What the loaders do on devices: pinned memory, uploads, and echoing on the device."""
