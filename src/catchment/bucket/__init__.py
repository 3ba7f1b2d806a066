"""One small contract for objects, with a local directory, S3 and memory behind it. Start with `contract.py`."""
