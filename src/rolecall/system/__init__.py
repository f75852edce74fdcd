"""The machine that rolecall runs on: processes, files, control groups, sockets, clocks, and logs."""
