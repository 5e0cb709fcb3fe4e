"""What the middleware answers by itself: health and metrics."""
