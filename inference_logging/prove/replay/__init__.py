"""Recorded requests sent again at their times, and the answers compared with the recorded ones.

``schedule`` reads an export, ``synthetic`` makes prompts where it has lengths only, ``player`` keeps the times,
``client`` sends one request, ``comparison`` puts both runs beside each other, and ``report`` writes what was found.
"""
