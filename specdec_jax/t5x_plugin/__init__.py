"""Speculative decoding inside T5X: the only room that imports t5x and seqio."""
