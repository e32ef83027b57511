"""What a sandbox's Python runs at its start: it waits for botocore to be imported, and gives it the fast path then.

It stands first in the path. Whoever has a `sitecustomize` of their own gets that too, as if this one were not there. A
process that never imports botocore pays for one look at each of its imports.
"""

import os
import sys
from importlib.machinery import PathFinder

_FOLDER = os.path.dirname(os.path.abspath(__file__))
# The package, last in the path: a function's own `nigh` comes before it.
_PACKAGES = os.path.dirname(_FOLDER)
# Imported before the first session is made, and by whoever makes one.
_AWAITED = "botocore.session"


class _Awaiting:
    """The first of the finders: finds nothing itself."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != _AWAITED:
            return None
        sys.meta_path.remove(_Awaiting)
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        loader = spec.loader
        run = loader.exec_module

        def run_and_hook(module):
            del loader.exec_module
            run(module)
            _hook()

        try:
            loader.exec_module = run_and_hook
        except AttributeError:
            return None
        return spec


def _hook():
    package = PathFinder.find_spec("nigh")
    # A function's own module of that name has none.
    if package is None or not os.path.exists(os.path.join(os.path.dirname(package.origin or ""), "hook.py")):
        return
    try:
        import nigh.hook

        nigh.hook.install()
    except Exception:
        # A botocore that this does not know, or none of it: everything goes over HTTP.
        return


# Whether there is a fast path is looked up at the first call: a process may have waited, without a function's environment.
if os.environ.get("NIGH_HOOK") != "off":
    if _PACKAGES not in sys.path:
        sys.path.append(_PACKAGES)
    sys.meta_path.insert(0, _Awaiting)

_others = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if os.path.abspath(entry) != _FOLDER])
if _others is not None and _others.loader is not None:
    from importlib.util import module_from_spec

    _module = sys.modules[__name__] = module_from_spec(_others)
    _others.loader.exec_module(_module)
