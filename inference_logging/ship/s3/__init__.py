"""Object storage: sealed segments as objects of a bucket, each there once, with a manifest that says what it holds.

`place` reads ``s3://bucket/prefix`` and names keys, `store` speaks S3, `staging` turns a segment into an object,
`delivery` puts it, `shipper` goes round, `reading` brings objects back, and `checking` proves what is in the bucket.
"""
