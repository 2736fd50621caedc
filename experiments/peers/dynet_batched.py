"""DyNet with auto-batching: operations of one kind that are ready at once run together."""

from experiments.peers import dynet


class Peer(dynet.Peer):
    autobatch = 1
