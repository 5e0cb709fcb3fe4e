"""The journal of this machine as a destination: `fields` has a record's fields, `local` sends them."""
