"""The flags of the operator: one table, from which the parser, the help and the settings are made.

``flag`` says what a flag is, ``kinds`` which values there are, one module per group which flags there are, ``table``
puts the groups together, ``line`` reads a command line. A new flag is a field of its settings and a row in a group.
"""
