"""From the servers to the listener: the queues, who empties them, and what may be changed meanwhile."""
