"""What measures: the costs of logging, and a replay of recorded traffic."""
