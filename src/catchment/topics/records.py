"""Messages on their way through a task: Arrow tables, never a Python object per message.

A table of records has these columns, in this order; `headers` only where an export needs them:

    offset     int64
    timestamp  int64             Kafka's own, in milliseconds since 1970
    key        binary            null: the message has none
    value      binary            null: the message has none
    headers    list<struct<key: string, value: binary>>

A backup's records have their headers and one column more:

    timestamp_type  int32   what the timestamp means, as Kafka numbers it: 0 CreateTime, 1 LogAppendTime, -1 neither

Decoded rows have the message's fields first and then Kafka's own, named so that they cannot be mistaken for a field.
"""

from __future__ import annotations

import pyarrow as pa

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RECORDS = pa.schema([("offset", pa.int64()), ("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
RECORDS_WITH_HEADERS = RECORDS.append(pa.field("headers", HEADERS))
BACKED = RECORDS_WITH_HEADERS.append(pa.field("timestamp_type", pa.int32()))

OFFSET = "_offset"  # int64, in every decoded file
TIMESTAMP = "_timestamp"  # timestamp[ms, UTC], likewise
OWN = (OFFSET, TIMESTAMP)

# A dead letter: the record as it was, and why. A backup's is complete, so that nothing of a message is lost there.
REASON = pa.field("reason", pa.string())
DEAD = RECORDS.append(REASON)
DEAD_BACKED = BACKED.append(REASON)
