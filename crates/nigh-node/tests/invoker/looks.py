"""What a process can see of itself. Returned by a handler, so that two ways to start it can be compared."""

import gc
import locale
import logging
import os
import resource
import signal
import site
import sys
import threading
import time

import boto3
import six

client = boto3.client("s3")
main = sys.modules["__main__"]


def limits():
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}


def descriptors():
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}").partition(":[")[0]
        except FileNotFoundError:
            pass  # the folder's own
    return found


def status():
    with open("/proc/self/status") as lines:
        fields = dict(line.rstrip("\n").split(":\t", 1) for line in lines)
    wanted = ["Uid", "Gid", "Groups", "Umask", "SigBlk", "SigIgn", "SigCgt", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp"]
    return {name: fields.get(name) for name in [*wanted, "Threads"]}


def file_system(path):
    found = os.statvfs(path)
    return [found.f_blocks * found.f_frsize, found.f_files, found.f_flag]


def handler(event, context):
    looks = {
        "environment": list(os.environ.items()),
        "path": sys.path,
        "folder": os.getcwd(),
        "arguments": [sys.argv, sys.orig_argv, sys.executable],
        "flags": [str(sys.flags), sys.dont_write_bytecode, sys.warnoptions, str(sys._xoptions), site.ENABLE_USER_SITE],
        "main": [sorted(vars(main)), main.__file__, main.__spec__.name, __name__, __file__],
        "importers": [[getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path], len(sys.path_hooks)],
        # Its own number is as many processes as the walls took.
        "ids": [os.getpid() > 1, os.getppid(), os.getsid(0), os.getpgrp(), os.getuid(), os.getgid() == os.getuid()],
        "status": status(),
        "signals": {number: str(signal.getsignal(number)) for number in signal.valid_signals()},
        "descriptors": descriptors(),
        "limits": limits(),
        "zone": [time.tzname, time.timezone, time.localtime(0).tm_hour],
        "locale": [locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding(), sys.stdout.encoding, sys.stdin.encoding],
        "files": [sorted(os.listdir("/")), sorted(os.listdir("/var/task")), os.listdir("/tmp"), sorted(os.listdir("/var"))],
        "sizes": [file_system("/tmp"), file_system("/var/task")[1:]],
        "threads": threading.active_count(),
        "logging": [str(handler) for handler in logging.getLogger().handlers],
        "collector": [gc.isenabled(), gc.get_threshold()],
        "boto3": [boto3.__file__, client.meta.endpoint_url, client.meta.region_name],
        "six": six.__file__,
        "own": sorted(name for name in sys.modules if name.startswith(("nigh", "app"))),
    }
    return {"looks": looks, "was_a_stem": gc.get_freeze_count() > 0}
