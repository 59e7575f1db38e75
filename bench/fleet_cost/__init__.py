"""What bench/fleet.py is made of: simulated agents, the server's poller, other ways to poll."""
