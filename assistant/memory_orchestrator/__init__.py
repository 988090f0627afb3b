"""The memory ledger and who may hold how much of it."""
