"""Bytes become columns: one decoder per format, and the schemas they share."""
