"""What reads segments: lists, figures, exports, pages, and the view."""
