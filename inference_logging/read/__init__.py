"""What reads segments: lists, figures, exports, pages, and the view.

Internal, with all modules of this folder: users import nothing from here.
"""
