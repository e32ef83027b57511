"""Middleware of OpenStack Swift's proxy for stores behind Nigh, and a reference client of its protocol.

The README of this folder is the protocol's document. `middleware` is the filter; `client` needs no Swift.
"""

#: The protocol's number, told by `GET /info`. A change that an older side would misread raises it.
PROTOCOL = 1
#: Where a node answers the middleware.
PUSH, INVALIDATE = "/outside/v1/push", "/outside/v1/invalidate"
