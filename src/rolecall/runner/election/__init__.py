"""Shards: several replicas share the objects, each object has one replica that reconciles it.

``hashing`` says to which shard an object belongs, ``leases`` how Leases say who holds it, ``protocol`` what a replica
does about that, ``member`` does it, and ``held_shards`` lets only objects of shards that are held into the queues.
"""
