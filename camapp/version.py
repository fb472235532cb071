"""The version, in a room of its own so that no floor has to import the whole package for it."""

VERSION = "0.1.0"
