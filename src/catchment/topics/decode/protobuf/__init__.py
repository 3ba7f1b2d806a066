"""Protobuf: the fields of all messages are found together, and each becomes a column at once."""
