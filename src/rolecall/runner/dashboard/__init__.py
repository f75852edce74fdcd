"""The live page: what the operator is doing, for people, and as JSON for programs.

``--ui-bind-address`` serves it. It shows what stands in the work queues, the informers and the records, and can only
read. ``views`` are what is shown, without a layout; ``server`` answers with them as HTML or as JSON.
"""
