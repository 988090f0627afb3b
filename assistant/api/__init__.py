"""The ways in for other processes: ZeroMQ commands at a running daemon, and the client that speaks to it."""
