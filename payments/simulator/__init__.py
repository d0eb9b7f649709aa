"""A separate local process that speaks the payment channels' real wire: for the demo, the tests and chaos.

It is product code, but never part of a deployment: it binds to loopback and refuses production settings. It imports
nothing of the drivers that it is there to test: its signing and its checking are its own.
"""
