"""`inference-logging view`: a local web application over folders of segments. It reads, and changes nothing.

The page of the browser is in ``static``. What the modules here answer is documented in docs/view.md.
"""
