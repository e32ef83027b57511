"""The native half of the client (`crates/nigh-python`), where this Python can load it.

It lies beside this file; `NIGH_NATIVE` names another file, or is `off`. `module` is None without it: then the client does
the same in Python, slower, and says nothing of it.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

_NAME = "nigh.nigh_native"
# Of the stable ABI that it is built for.
_OLDEST = (3, 11)
_BESIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nigh_native.abi3.so")
# What these modules call. A module of another Nigh has another.
_API = 1


def _load() -> Any:
    file = os.environ.get("NIGH_NATIVE") or _BESIDE
    # The suffixes tell what this Python loads: free-threaded ones have no stable ABI.
    can_load = sys.version_info >= _OLDEST and ".abi3.so" in importlib.machinery.EXTENSION_SUFFIXES
    if file == "off" or not can_load or not os.path.exists(file):
        return None
    try:
        loader = importlib.machinery.ExtensionFileLoader(_NAME, file)
        spec = importlib.util.spec_from_file_location(_NAME, file, loader=loader)
        if spec is None:
            return None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError:
        # Built for another processor or a newer Python or C library.
        return None
    if getattr(module, "API", None) != _API:
        return None
    sys.modules[_NAME] = module
    return module


module: Any = _load()
