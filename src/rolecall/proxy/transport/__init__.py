"""How bytes pass through the proxy: forwarded requests, upgraded connections, CONNECT tunnels."""
