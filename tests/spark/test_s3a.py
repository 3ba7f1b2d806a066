"""Delta on S3, through S3A: two buckets with settings of their own, in a process of their own (S3's jars are large)."""

from __future__ import annotations

import json

from catchment.testing.s3 import S3Server, s3_server
from tests.spark.programs import run

PROGRAM = """
    import json, sys
    from catchment.config.secret import Secret
    from catchment.spark.session import session
    from catchment.spark.settings import S3Access

    buckets = [
        S3Access(name, endpoint, region, Secret(key), Secret(secret))
        for name, endpoint, region, key, secret in json.loads(sys.stdin.read())
    ]
    spark = session("local[2]", buckets=buckets[:1])
    spark = session("local[2]", buckets=buckets[1:])  # a second lake in the same process
    first, second = (f"s3a://{bucket.bucket}/prod/warehouse/sales/orders" for bucket in buckets)
    spark.range(10).write.format("delta").save(first)
    spark.sql(f"DELETE FROM delta.`{first}` WHERE id < 3")
    spark.read.format("delta").load(first).write.format("delta").save(second)
    print(spark.read.format("delta").load(second).selectExpr("sum(id)").first()[0])
    spark.stop()
"""


def test_delta_on_two_services_at_once(s3: S3Server) -> None:
    with s3_server(region="eu-west-1") as other:
        places = [
            (server.fresh_bucket(), server.endpoint, server.region, server.access_key, server.secret_key)
            for server in (s3, other)
        ]
        done = run(PROGRAM, input=json.dumps(places))
        keys = [entry["Key"] for entry in s3.client().list_objects_v2(Bucket=places[0][0])["Contents"]]
    assert (done.stdout, done.stderr) == (f"{sum(range(3, 10))}\n", "")
    assert "prod/warehouse/sales/orders/_delta_log/00000000000000000001.json" in keys
