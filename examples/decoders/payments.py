"""A decoder of one's own: payments in a fixed-width format, as old systems send them.

    0000004711 20261115 -00000000990 EUR          without the spaces, which are here for reading:
    |          |        ||           |            account, day, sign and cents, currency
    0         10       18 19         30-33

Put this file next to catchment.yaml, and name the function in the export:

    decode: {name: "payments:payments", options: {default_currency: EUR}}

It works on whole columns: PyArrow has functions for nearly everything, and there is no loop over messages.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

FORM = rb"^[0-9]{10}[0-9]{8}[+-][0-9]{11}([A-Z]{3}|   )$"
STAND_IN = b"0" * 10 + b"20000101" + b"+" + b"0" * 11 + b"   "


def payments(records: pa.Table, options: Mapping[str, str]) -> pa.Table:
    """One row for each record, in the same order. What is in `_error` says why there is none; null: all is well."""
    values = records["value"].combine_chunks()
    well_formed = pc.fill_null(pc.match_substring_regex(values, pattern=FORM), False)
    # A stand-in where a line is not, so that what follows need not mind; `_error` leaves such rows out.
    lines = pc.if_else(well_formed, values, STAND_IN).cast(pa.string())

    def part(start: int, stop: int) -> pa.Array:
        return pc.utf8_slice_codeunits(lines, start, stop)

    day = pc.strptime(part(10, 18), format="%Y%m%d", unit="s", error_is_null=True)
    a_day = pc.fill_null(pc.equal(pc.strftime(day, format="%Y%m%d"), part(10, 18)), False)  # February has no 31st
    amount = pc.binary_join_element_wise(part(18, 28), part(28, 30), ".").cast(pa.decimal128(11, 2))
    currency = part(30, 33)
    error = pc.if_else(a_day, pa.scalar(None, pa.string()), "its day is in no calendar")
    return pa.table(
        {
            "account": part(0, 10).cast(pa.int64()),
            "day": day.cast(pa.date32()),
            "amount": amount,
            "currency": pc.if_else(pc.equal(currency, "   "), options.get("default_currency", "EUR"), currency),
            "_error": pc.if_else(well_formed, error, "not a payment of 33 characters"),
        }
    )
