"""What runs in a server. It imports none of `read`, `ship`, `prove` and `cli`.

Internal, with all modules of this folder: users import nothing from here.
"""
