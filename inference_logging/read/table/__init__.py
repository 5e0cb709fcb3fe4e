"""One table of all records: a Parquet file for each sealed segment, the live ones in memory, asked by DuckDB's SQL."""
