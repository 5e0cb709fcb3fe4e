"""A database of ClickHouse as a destination: `schema` has its tables, `rows` a record's row, `destination` sends them.

Internal, with all modules of this folder: users import nothing from here.
"""
