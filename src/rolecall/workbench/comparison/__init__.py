"""Comparison of objects and end states, as plans, replays, and crash tests share it.

Each of these commands has its own meaning of "the same", so this package has parts for comparers, not one comparer.
"""
