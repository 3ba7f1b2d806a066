"""Avro: one field of all messages at a time."""
