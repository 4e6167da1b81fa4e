"""Glue that follows other libraries."""
