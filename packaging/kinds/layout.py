"""What every package puts below its prefix: the command, its programs, documents, completions."""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import archive
import build
import elf
import project
import roots

# Where the shells look for completions, below the prefix.
COMPLETIONS = {
    "bash": "share/bash-completion/completions/nigh",
    "zsh": "share/zsh/site-functions/_nigh",
    "fish": "share/fish/vendor_completions.d/nigh.fish",
}


@dataclass(frozen=True)
class Release:
    """What packages are made from."""

    version: str
    commit: str
    # Seconds since 1970: the time of all that is packed.
    epoch: int
    architecture: project.Architecture
    # Bytes by name.
    programs: dict[str, bytes]
    # Texts.
    licences: str
    sbom: str

    @property
    def glibc(self):
        """The oldest glibc that the programs are for, such as "2.31": none is named that was not tried."""
        return ".".join(map(str, max(elf.oldest_glibc(self.programs.values()), roots.OLDEST_GLIBC)))


def completions(program, architecture):
    """The shells' scripts, if this machine can run the program."""
    if not build.is_native(architecture):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nigh"
        path.write_bytes(program)
        path.chmod(0o755)
        return {
            shell: subprocess.run([path, "completions", shell], check=True, stdout=subprocess.PIPE).stdout
            for shell in COMPLETIONS
        }


def helpers(release):
    """The programs that `nigh` starts, for `lib/nigh`."""
    tree = archive.Tree()
    for name, text in release.programs.items():
        if name != "nigh":
            tree.file(name, text, 0o755)
    return tree


def prefix(release):
    """All that lies below the prefix, whatever it is."""
    tree = archive.Tree()
    tree.file("bin/nigh", release.programs["nigh"], 0o755)
    tree.graft("lib/nigh", helpers(release))
    tree.file("share/doc/nigh/THIRD-PARTY.txt", release.licences)
    tree.file("share/doc/nigh/nigh.cdx.json", release.sbom)
    for shell, text in completions(release.programs["nigh"], release.architecture).items():
        tree.file(COMPLETIONS[shell], text)
    return tree
