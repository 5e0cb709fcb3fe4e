"""SQL over records: the tables that a statement sees, the ready-made questions, and the rows of an answer."""
