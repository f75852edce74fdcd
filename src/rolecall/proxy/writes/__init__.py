"""How the proxy handles writes: owner injection, bodies, and preconditions on the resourceVersion."""
