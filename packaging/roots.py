"""Makes file systems of Debian's packages, by mmdebstrap, and runs programs in them.

Roots to build and test in are made once for each release and list of packages, and kept outside the clone: remove the
folder to have newer packages. `NIGH_DEBIAN_MIRROR` names another mirror. Making and entering a root needs root.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

# The oldest supported release, whose glibc the programs are built and tested with; and the one of images and tests.
OLDEST, CURRENT = "bullseye", "bookworm"
OLDEST_GLIBC = (2, 31)
# Enters the new root, so that the old one is out of reach and namespaces can be made in it.
ENTER = """
set -e
root=$1; shift
mount --make-rprivate /
mount --bind "$root" "$root"
mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/.old"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
while [ "$1" != -- ]; do
    mkdir -p "$root$2"
    mount --rbind "$1" "$root$2"
    shift 2
done
shift
[ "$NIGH_ROOT_NETWORK" = host ] || ip link set lo up
cd "$root"
pivot_root . .old
umount -l /.old
exec "$@"
"""


class RootError(RuntimeError):
    """A root cannot be made here."""


def cache():
    """The folder for what is kept outside the clone."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "nigh" / "roots"


def missing():
    """Why no root can be made on this machine, or None."""
    if os.geteuid() != 0:
        return "root is needed to make a file system of Debian's packages"
    if not shutil.which("mmdebstrap"):
        return "mmdebstrap is missing: run scripts/install-package-tools.sh"
    return None


def sources(release):
    """The lines of sources.list."""
    mirror = os.environ.get("NIGH_DEBIAN_MIRROR", "http://deb.debian.org")
    lines = [f"deb {mirror}/debian {release} main"]
    if release == CURRENT:
        lines.append(f"deb {mirror}/debian-security {release}-security main")
    return lines


def make(path, release, packages, variant="minbase", architecture=None, epoch=0):
    """Makes the tar of a root."""
    if why := missing():
        raise RootError(why)
    command_line = ["mmdebstrap", "--quiet", "--mode=root", f"--variant={variant}", "--format=tar",
                    *([f"--include={','.join(packages)}"] if packages else []),
                    *([f"--architectures={architecture}"] if architecture else []), release, str(path),
                    *sources(release)]
    made = subprocess.run(command_line, env=os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, check=False)
    if made.returncode != 0:
        path.unlink(missing_ok=True)
        raise RootError(f"mmdebstrap could not make a root of {release}: {made.stderr.strip()[-600:]}")


def kept(release, packages):
    """The tar of a root, from an earlier run if there was one."""
    name = hashlib.sha256(repr(sorted(packages)).encode()).hexdigest()[:16]
    path = cache() / f"{release}-{name}.tar"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".new")
        make(half, release, packages)
        half.rename(path)
    return path


def unpack(tar, folder):
    """Unpacks a root's tar, devices excepted: the machine's are bound over them."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-x", "--numeric-owner", "--exclude=./dev/*", "-f", str(tar), "-C", str(folder)], check=True)


def command(root, arguments, binds=(), network=True):
    """The command line that runs `arguments` in a root, with folders of the machine bound in, as (here, there).

    Without `network` there is a loopback interface only. All processes end with the first."""
    spaces = ["--mount", "--pid", "--fork", "--kill-child", *([] if network else ["--net"])]
    pairs = [str(part) for pair in binds for part in pair]
    return ["env", f"NIGH_ROOT_NETWORK={'host' if network else 'none'}", "unshare", *spaces,
            "sh", "-c", ENTER, "enter", str(root), *pairs, "--", *arguments]
