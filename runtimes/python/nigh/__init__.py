"""Nigh's objects for Python: views of shared memory instead of HTTP, and the hook that gives boto3 the same.

`Client` is the library. `nigh.hook` is what sandboxes load by their environment; it is not imported from here.
"""

from nigh.client import Client, Draft, Head, Put, Reader, View
from nigh.errors import (
    AccessDenied,
    Busy,
    InvalidRange,
    NighError,
    NoServer,
    NotAdmitted,
    NotFound,
    NotModified,
    PreconditionFailed,
    ProtocolError,
    Refused,
    TimedOut,
    Unavailable,
    UseHttp,
)

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "Busy",
    "Client",
    "Draft",
    "Head",
    "InvalidRange",
    "NighError",
    "NoServer",
    "NotAdmitted",
    "NotFound",
    "NotModified",
    "PreconditionFailed",
    "ProtocolError",
    "Put",
    "Reader",
    "Refused",
    "TimedOut",
    "Unavailable",
    "UseHttp",
    "View",
]
