"""One rank among many: how processes start, find each other, notice a loss and end.

A process becomes a rank by `joining`. The ranks of a program that `torchrun` starts are
a `group`, which listens to their `heartbeat` and says who is a `lost_peer`. For
`launch`, in `launcher`, an `agent` starts each rank as a `worker`: a copy of the
`fork_server`, where all is `preloaded`. Meanwhile the `caller` sees the ranks'
`output`; a `guard` removes what a caller that was killed has left. `threads` says how
many cores a rank computes on.
"""
