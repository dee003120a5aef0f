"""Compilation for TPUs that are not at hand: what the loop needs there, and what it would gain."""
