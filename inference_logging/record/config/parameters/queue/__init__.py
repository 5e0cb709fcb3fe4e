"""From the servers to the listener: the queues, the listener, and changes at run time."""
