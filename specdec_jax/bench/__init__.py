"""Measurements, and the tables and figures made from them."""
