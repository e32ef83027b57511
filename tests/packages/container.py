"""The image as a container, by runc alone and by containerd with a folder of its own."""

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
import time
import uuid
from pathlib import Path

FILES = "/files"
STARTS_WITHIN_S = 60


def checked(words, errors=subprocess.PIPE):
    """Runs a command of the host and gives what it printed; another exit code than 0 is an error."""
    ran = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, check=False)
    if ran.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))} ended with {ran.returncode}\n{ran.stdout}\n{ran.stderr}")
    return ran.stdout


class Image:
    """An image layout in a tar, read as a container engine reads it."""

    def __init__(self, path):
        self.tar = tarfile.open(path)
        self.index = self.document("index.json")
        self.manifest = self.blob(self.index["manifests"][0], json.loads)
        self.configuration = self.blob(self.manifest["config"], json.loads)

    def document(self, name):
        """A JSON document by its path."""
        return json.loads(self.tar.extractfile(name).read())

    def blob(self, descriptor, read=bytes):
        """What a descriptor names, which must have its size and hash."""
        data = self.tar.extractfile(f"blobs/{descriptor['digest'].replace(':', '/')}").read()
        found = (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))
        assert found == (descriptor["digest"], descriptor["size"]), descriptor
        return read(data)

    def unpack(self, folder):
        """Lays its layers into a folder."""
        folder.mkdir()
        for layer in self.manifest["layers"]:
            subprocess.run(["tar", "-xz", "--numeric-owner", "-C", str(folder)], input=self.blob(layer), check=True)


class RuncContainer:
    """A container by runc, with the image's user, command and environment."""

    def __init__(self, image, arguments=(), unmasked=False):
        self.name = f"nigh-test-{uuid.uuid4().hex[:12]}"
        self.folder = Path(tempfile.mkdtemp(prefix="nigh-image-"))
        self.folder.chmod(0o755)
        self.files = self.folder / "files"
        self.files.mkdir()
        self.files.chmod(0o777)
        self.log = self.folder / "log"
        self.signal = image.configuration["config"]["StopSignal"]
        image.unpack(self.folder / "rootfs")
        checked(["runc", "spec", "--bundle", str(self.folder)])
        path = self.folder / "config.json"
        path.write_text(json.dumps(self.specification(json.loads(path.read_text()), image, arguments, unmasked)))
        with open(self.log, "w", encoding="utf-8") as out:
            words = ["runc", "run", "--bundle", str(self.folder), self.name]
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def specification(self, spec, image, arguments, unmasked):
        """runc's own proposal, with what the image says; like Docker's, but without capabilities."""
        config = image.configuration["config"]
        user, group = map(int, config["User"].split(":"))
        spec["process"] |= {
            "terminal": False, "user": {"uid": user, "gid": group}, "env": config["Env"], "cwd": config["WorkingDir"],
            "args": [*config["Entrypoint"], *config["Cmd"], *arguments], "capabilities": {}, "rlimits": [],
        }
        spec["root"]["readonly"] = False
        spec["mounts"].append({"destination": FILES, "type": "bind", "source": str(self.files), "options": ["rbind", "rw"]})
        if unmasked:
            spec["linux"]["maskedPaths"] = spec["linux"]["readonlyPaths"] = []
        return spec

    def run(self, words, folder=""):
        """Runs a command in it and gives all that it printed; `nigh` is the image's."""
        words = ["runc", "exec", "--cwd", f"{FILES}/{folder}", self.name, *named(words)]
        return checked(words, errors=subprocess.STDOUT)

    def stop(self):
        """Sends the signal that the image names."""
        checked(["runc", "kill", self.name, self.signal])

    def close(self):
        """Ends and removes it."""
        subprocess.run(["runc", "delete", "--force", self.name], stderr=subprocess.DEVNULL, check=False)
        self.process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)


class ContainerdContainer:
    """A container by containerd, which reads the image itself."""

    def __init__(self, path, image, arguments=()):
        self.folder = Path(tempfile.mkdtemp(prefix="nigh-containerd-"))
        self.folder.chmod(0o755)
        self.files = self.folder / "files"
        self.files.mkdir()
        self.files.chmod(0o777)
        self.log = self.folder / "log"
        self.socket = self.folder / "containerd.sock"
        self.name = f"nigh-test-{uuid.uuid4().hex[:12]}"
        settings = f'version = 2\nroot = "{self.folder}/root"\nstate = "{self.folder}/state"\n' \
                   f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\n  address = "{self.socket}"\n'
        (self.folder / "config.toml").write_text(settings)
        with open(self.log, "w", encoding="utf-8") as out:
            words = ["containerd", "--config", str(self.folder / "config.toml")]
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        deadline = time.monotonic() + STARTS_WITHIN_S
        while subprocess.run(self.ctr("version"), capture_output=True, check=False).returncode != 0:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"containerd does not answer:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.1)
        checked(self.ctr("images", "import", str(path)))
        reference = image.index["manifests"][0]["annotations"]["io.containerd.image.name"]
        config = image.configuration["config"]
        mount = f"type=bind,src={self.files},dst={FILES},options=rbind:rw"
        checked(self.ctr("run", "--detach", "--mount", mount, reference, self.name, *config["Entrypoint"], *config["Cmd"],
                         *arguments))

    def ctr(self, *words):
        """containerd's client."""
        return ["ctr", "--address", str(self.socket), "--namespace", "nigh-test", *words]

    def run(self, words, folder=""):
        """Runs a command in it and gives all that it printed; `nigh` is the image's."""
        number = uuid.uuid4().hex[:8]
        place = f"{FILES}/{folder}"
        words = self.ctr("task", "exec", "--exec-id", number, "--cwd", place, self.name, *named(words))
        return checked(words, errors=subprocess.STDOUT)

    def close(self):
        """Ends the container, containerd and what it left."""
        for words in (("task", "kill", "--signal", "KILL", self.name), ("task", "delete", "--force", self.name),
                      ("container", "delete", self.name)):
            subprocess.run(self.ctr(*words), capture_output=True, check=False)
        self.process.terminate()
        self.process.wait(60)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if line.split()[1].startswith(str(self.folder)):
                subprocess.run(["umount", "--lazy", line.split()[1]], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def named(words):
    """With the program's path, where the words begin with `nigh`."""
    return ["/usr/bin/nigh", *words[1:]] if words[0] == "nigh" else list(words)
