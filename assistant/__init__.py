"""A fully local voice assistant for machines with 2 GB of memory."""

__version__ = "0.1.0"
