"""What measures: the costs of logging, and a replay of recorded traffic.

Internal, with all modules of this folder: users import nothing from here.
"""
