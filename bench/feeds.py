"""The feeds room: packing and merging archives, and the requests that an hour needs."""

from __future__ import annotations

from bench import feeds_archives, feeds_requests


def main() -> None:
    feeds_archives.main()
    feeds_requests.main()


if __name__ == "__main__":
    main()
