"""The private places of ansible-core and ansible-runner that a warm run changes: one module for each."""
