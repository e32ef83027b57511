"""The rules by which a waiting Python may become a function's process, or must be started afresh."""

import gc
import os
import socket
import sys
import tempfile
import unittest
import weakref
from pathlib import Path

import nigh_stem

sys.path.append(str(Path(__file__).parents[2] / "tests"))
from skipped import skip_unless

try:
    import awslambdaric  # noqa: F401
except ImportError:
    awslambdaric = None

COMMAND = [sys.executable, "-m", "awslambdaric", "app.handler"]
GIVEN = {"LANG": "en_US.UTF-8", "PATH": "/usr/bin", "LD_LIBRARY_PATH": "TASK", "PYTHONPATH": "TASK"}


@skip_unless(awslambdaric, "test_nigh_stem", "this Python has no awslambdaric")
class WhyFresh(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        start = nigh_stem.Start(dict(GIVEN))
        # This process was started with other variables.
        start.set_by_site, start.unset_by_site = {}, []
        cls.stem = nigh_stem.Stem(start, ["boto3", "not_there"])

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.task = Path(folder.name)
        own = nigh_stem._TASK_ROOT
        nigh_stem._TASK_ROOT = folder.name
        self.addCleanup(setattr, nigh_stem, "_TASK_ROOT", own)
        self.stem.start.environment = self.environment()

    def environment(self, **changes):
        return {**{name: value.replace("TASK", str(self.task)) for name, value in GIVEN.items()}, **changes}

    def why(self, **changes):
        return self.stem.why_fresh(COMMAND, self.environment(**changes))

    def test_a_function_s_own_variables_do_not_matter(self):
        self.assertIsNone(self.why(MINE="1", TZ="Europe/Rome", AWS_ACCESS_KEY_ID="key", AWS_REGION="eu-west-1"))
        self.assertIsNone(self.why(AWS_SECRET_ACCESS_KEY="secret", AWS_SESSION_TOKEN="token"))

    def test_what_an_interpreter_or_a_library_reads_at_its_start_does(self):
        names = "PYTHONUNBUFFERED PYTHONHASHSEED LD_PRELOAD LC_ALL LANG LANGUAGE MALLOC_ARENA_MAX GLIBC_TUNABLES HOME"
        for name in [*names.split(), "OPENSSL_CONF", "OMP_NUM_THREADS", "AWS_LAMBDA_RUNTIME_API"]:
            self.assertIn(name, self.why(**{name: "1"}) or "", name)
        without = self.environment()
        del without["LANG"]
        self.assertIn("LANG", self.stem.why_fresh(COMMAND, without) or "")

    def test_what_an_import_has_read_does(self):
        for name in ["AWS_LAMBDA_LOG_LEVEL", "AWS_LAMBDA_LOG_FORMAT", "AWS_EXECUTION_ENV"]:
            self.assertIn("read by an import", self.why(**{name: "1"}) or "", name)

    def test_what_a_pth_file_sets_or_names_does(self):
        self.stem.start.site_words = {"COVERAGE_PROCESS_START"}
        self.assertIn(".pth", self.why(COVERAGE_PROCESS_START="x") or "")
        self.assertIsNone(self.why(COVERAGE="x"))

    def test_another_path_does_not_unless_it_is_relative_or_no_folder(self):
        self.assertIsNone(self.why(PYTHONPATH=f"{self.task}/vendor:/nowhere"))
        self.assertIsNone(self.why(PYTHONPATH=""))
        self.assertIn("relative", self.why(PYTHONPATH="vendor") or "")
        (self.task / "packages.zip").write_bytes(b"")
        self.assertIn("no folder", self.why(PYTHONPATH=f"{self.task}/packages.zip") or "")

    def test_an_own_module_of_a_loaded_name_does(self):
        for name in ["json.py", "six.pyc", "urllib3.abi3.so", "sitecustomize.py", "not_there.py"]:
            (self.task / name).touch()
            self.assertIn(name, self.why() or "", name)
            (self.task / name).unlink()
        (self.task / "vendor").mkdir()
        (self.task / "vendor" / "six.py").touch()
        self.assertIsNone(self.why())
        self.assertIn("six.py", self.why(PYTHONPATH=f"{self.task}/vendor") or "")

    def test_a_module_in_a_folder_that_the_stem_had_in_its_path_does_not(self):
        site = self.task / "site"
        site.mkdir()
        (site / "sitecustomize.py").touch()
        self.assertIn("sitecustomize", self.why(PYTHONPATH=f"{site}:{self.task}") or "")
        self.stem.start.environment = self.environment(PYTHONPATH=f"{site}:{self.task}")
        self.assertIsNone(self.why(PYTHONPATH=f"{site}:{self.task}:/nowhere"))
        (self.task / "sitecustomize.py").touch()
        self.assertIn("sitecustomize", self.why(PYTHONPATH=f"{site}:{self.task}") or "")

    def test_an_own_package_does_and_a_folder_of_data_does_not(self):
        (self.task / "json").mkdir()
        self.assertIsNone(self.why())
        (self.task / "json" / "__init__.py").touch()
        self.assertIn("json", self.why() or "")

    def test_modules_that_are_not_loaded_and_built_in_ones_do_not(self):
        for name in ["app.py", "numpy_like.py", "sys.py", "time.py", "json.txt", "boto3.json"]:
            (self.task / name).touch()
        self.assertIsNone(self.why())

    def test_what_was_looked_for_in_vain_counts_as_loaded(self):
        self.assertIn("not_there", self.stem.names)
        self.assertEqual(len(self.stem.missing), 1)
        self.assertIn("not_there", self.stem.missing[0])

    def test_an_own_library_of_a_loaded_name_does(self):
        (self.task / "libown.so.1").touch()
        self.assertIsNone(self.why())
        library = next(name for name in self.stem.libraries if name.startswith("libc"))
        (self.task / f"{library}.so.99").touch()
        self.assertIn(library, self.why() or "")

    def test_another_program_does(self):
        self.assertIsNotNone(self.stem.why_fresh(["/bin/sh", "-c", "true"], self.environment()))


@skip_unless(awslambdaric, "test_nigh_stem", "this Python has no awslambdaric")
class PreparedBotocore(unittest.TestCase):
    def setUp(self):
        from botocore import handlers, loaders, session

        self.loaders, self.session, self.handlers = loaders, session, handlers
        for owner, name in [
            (loaders.JSONFileLoader, "load_file"),
            (loaders.Loader, "list_available_services"),
            (session, "get_session"),
        ]:
            self.addCleanup(setattr, owner, name, getattr(owner, name))
        self.expected = loaders.Loader().load_data("endpoints")
        self.services = loaders.Loader().list_available_services("service-2")
        nigh_stem.prepare_botocore()

    def test_each_file_is_given_out_once(self):
        first, second = (self.loaders.Loader().load_data("endpoints") for _ in range(2))
        self.assertEqual((first, second), (self.expected, self.expected))
        self.assertIsNot(first, second)

    def test_the_list_of_services_is_botocore_s_and_knows_of_others(self):
        self.assertEqual(self.loaders.Loader().list_available_services("service-2"), self.services)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "own" / "1").mkdir(parents=True)
            (Path(folder) / "own" / "1" / "service-2.json").write_text("{}")
            added = self.loaders.Loader(extra_search_paths=[folder]).list_available_services("service-2")
        self.assertEqual(sorted([*self.services, "own"]), added)

    def test_the_session_is_given_out_once_and_initialised_then(self):
        import botocore

        seen = []
        botocore.register_initializer(seen.append)
        self.addCleanup(botocore.unregister_initializer, seen.append)
        sessions = [self.session.get_session() for _ in range(2)]
        self.assertIsNot(*sessions)
        self.assertEqual(seen, sessions)

    def test_who_has_changed_the_handlers_gets_a_session_with_the_change(self):
        heard = []
        added = ("before-send.nothing", lambda **_: heard.append(1))
        self.handlers.BUILTIN_HANDLERS.append(added)
        self.addCleanup(self.handlers.BUILTIN_HANDLERS.remove, added)
        self.session.get_session().get_component("event_emitter").emit("before-send.nothing")
        self.assertEqual(heard, [1])


class EnvironmentReads(unittest.TestCase):
    def test_reads_by_any_way_are_noted_and_only_inside(self):
        os.environ["HELD"] = "1"
        with nigh_stem.EnvironmentReads() as reads:
            os.environ.get("ABSENT")
            os.getenv("HELD")
            "ASKED" in os.environ
            os.environb.get(b"BYTES")
        os.environ.get("LATER")
        self.assertEqual(reads.names, {"ABSENT", "HELD", "ASKED", "BYTES"})
        self.assertFalse(reads.all)

    def test_who_looks_at_all_has_read_all(self):
        with nigh_stem.EnvironmentReads() as reads:
            dict(os.environ)
        self.assertTrue(reads.all)


class Message(unittest.TestCase):
    def receive(self, message):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(message)
            ours.shutdown(socket.SHUT_WR)
            return nigh_stem.receive(theirs.fileno())

    def test_words_and_variables_come_out_as_they_went_in(self):
        body = (2).to_bytes(4, "little") + b"python3\0-m\0A=1=2\0EMPTY=\0NO_TEXT=\xff\0"
        command, environment = self.receive(len(body).to_bytes(4, "little") + body)
        self.assertEqual(command, ["python3", "-m"])
        self.assertEqual(environment, {"A": "1=2", "EMPTY": "", "NO_TEXT": "\udcff"})

    def test_a_message_too_long_or_cut_short_is_refused(self):
        with self.assertRaises(ValueError):
            self.receive((1 << 30).to_bytes(4, "little"))
        with self.assertRaises(EOFError):
            self.receive((100).to_bytes(4, "little") + b"short")


class Giving(unittest.TestCase):
    """What was needed once does not stay."""

    def setUp(self):
        self.now, self.resident, self.trims = 0.0, 0, 0

    def trim(self, _):
        self.trims += 1

    def giving(self):
        return nigh_stem.GivingBack(trim=self.trim, clock=lambda: self.now, resident=lambda: self.resident)

    def invocation(self, giving, seconds, grown):
        giving.begins()
        self.now += seconds
        self.resident += grown
        giving.ends()

    def test_a_short_invocation_that_kept_little_costs_nothing(self):
        giving = self.giving()
        self.invocation(giving, 0.001, 1 << 20)
        giving.ends()
        self.assertEqual(self.trims, 0)

    def test_a_long_one_and_one_that_kept_much_give_memory_back(self):
        giving = self.giving()
        self.invocation(giving, 0.1, 0)
        self.invocation(giving, 0.001, 9 << 20)
        self.assertEqual(self.trims, 2)

    def test_it_is_given_back_before_the_next_is_waited_for_and_the_wait_is_as_it_was(self):
        giving, order = self.giving(), []
        giving._trim = lambda _: order.append("trim")

        def wait(client, *, patience):
            """As it was."""
            order.append("wait")
            self.now += 1
            return client, patience

        waiting = giving.around(wait)
        self.assertEqual((waiting.__doc__, waiting("one", patience=2)), ("As it was.", ("one", 2)))
        self.now += 1
        waiting("one", patience=2)
        self.assertEqual(order, ["wait", "trim", "wait"])

    def test_who_watches_the_collector_or_has_it_off_is_left_alone(self):
        giving, collected = self.giving(), []

        def watch(phase, _):
            collected.append(phase)

        gc.callbacks.append(watch)
        self.addCleanup(gc.callbacks.remove, watch)
        self.invocation(giving, 0.1, 0)
        self.assertEqual((collected, self.trims), ([], 1))
        gc.callbacks.remove(watch)
        self.addCleanup(gc.callbacks.append, watch)

        class Cycle:
            def __init__(self):
                self.itself = self

        gc.disable()
        self.addCleanup(gc.enable)
        kept = weakref.ref(Cycle())
        self.invocation(giving, 0.1, 0)
        self.assertIsNotNone(kept())
        gc.enable()
        self.invocation(giving, 0.1, 0)
        self.assertIsNone(kept())

    def test_what_takes_long_is_done_seldom(self):
        giving = self.giving()

        def slow(_):
            self.trims += 1
            self.now += 1

        giving._trim = slow
        for _ in range(150):
            self.invocation(giving, 0.5, 0)
        self.assertEqual(self.trims, 2)

    def test_what_a_large_invocation_took_is_not_resident_afterwards(self):
        giving = nigh_stem.GivingBack()
        giving.begins()
        before = nigh_stem._resident_bytes()
        # Below glibc's threshold for a mapping of their own, and in cycles: neither goes by itself.
        kept = [[bytearray(60_000)] for _ in range(1000)]
        for one in kept:
            one.append(one)
        during = nigh_stem._resident_bytes()
        hole = bytearray(1000)
        del kept, one
        giving.ends()
        after = nigh_stem._resident_bytes()
        self.assertGreater(during - before, 50 << 20)
        self.assertLess(after - before, 16 << 20, len(hole))


if __name__ == "__main__":
    unittest.main()
