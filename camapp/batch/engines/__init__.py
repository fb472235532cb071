"""Engines: who runs the shards of an export."""
