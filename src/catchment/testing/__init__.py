"""Test doubles and test servers, for our own tests and for yours.

    clock        FakeClock: time that a test owns
    dying        DyingBucket: fails before or after the n-th call
    interleave   Interleaver: every order of two or three tasks' bucket calls
    s3, kafka    a real S3 server and a real broker, as context managers
    http         an HTTP feed whose behaviour a test scripts
    spark        a standalone Spark cluster on this machine
    fixtures     all of the servers as pytest fixtures

Each is imported from its module: `from catchment.testing.clock import FakeClock`. They need the extra `testing`.
"""
