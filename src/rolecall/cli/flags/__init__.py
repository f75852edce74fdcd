"""The flags of the operator: one table, from which the parser, the help and the settings are made.

``flag`` defines what a flag is, ``values`` the types of values, one ``*_flags`` module each group of flags.
``all_flags`` lists the groups, ``command_line`` parses a command line. To add a flag, add a field to its settings and a
row to a group.
"""
