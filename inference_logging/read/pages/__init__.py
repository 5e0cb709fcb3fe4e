"""Pages as one file that loads nothing: figures, plots, tables and words, readable with and without JavaScript.

``static`` holds the look and the plots, which the application of `inference-logging view` serves too.
"""
