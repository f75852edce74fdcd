"""The live page in a terminal.

``client`` reads the JSON of the live page, ``reading`` makes views of it in which no text can do anything to a
terminal, ``screen`` is what keys do, the modules of the pages and ``frame`` make lines of views, ``session`` connects
them with the terminal. Only ``session`` and ``keys`` know that there is one.
"""
