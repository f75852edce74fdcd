"""Which replica works: one leader, or with shards several replicas that share the objects.

``lease`` defines the contents of Leases, ``elector`` holds one, ``membership`` decides who holds which shard, and
``shard_member`` acts on that. ``lease_guard`` and ``supervisor`` kill a replica before its Lease expires.
"""
