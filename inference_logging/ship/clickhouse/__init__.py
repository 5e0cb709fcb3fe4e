"""ClickHouse as a destination: `schema` has its tables, `rows` a record's row, `destination` sends them."""
