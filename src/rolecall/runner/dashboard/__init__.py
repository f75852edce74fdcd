"""The dashboard: what the operator is doing, for people, and as JSON for programs.

``--ui-bind-address`` serves it. It is read-only and shows the state of work queues, informers, and records. ``views``
has the contents without a layout; ``server`` returns them as HTML or as JSON.
"""
