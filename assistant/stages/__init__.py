"""Stages: engines, and the worker processes that they live in. `registry` lists them."""
