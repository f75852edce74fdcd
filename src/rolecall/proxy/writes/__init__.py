"""What the proxy does to writes: owner references, bodies, and conditions on versions."""
