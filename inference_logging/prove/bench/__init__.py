"""What logging costs on this machine: ways of logging beside each other, each cell in a process of its own.

Internal, with all modules of this folder: users import nothing from here.
"""
