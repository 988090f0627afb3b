"""Looks at everything that the assistant needs of its machine, and says what mends what is wrong. Knows no daemon."""
