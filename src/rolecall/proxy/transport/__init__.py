"""How the proxy transports bytes: forwarded requests, upgraded connections, CONNECT tunnels."""
