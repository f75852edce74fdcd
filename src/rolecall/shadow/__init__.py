"""A control plane that stands in for a cluster: what a run asks about is imported from a source before it is answered.

``shadow.Shadow`` is the whole; a ``source.Source`` fills it, from a live cluster or from a record.
"""
