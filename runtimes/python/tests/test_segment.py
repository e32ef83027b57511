"""Segments: what is read, mapped, written and let go, and what the server is told of it."""

import gc
import mmap
import os
import resource
import unittest
from unittest import mock

import nigh
from nigh import wire
from nigh.errors import ProtocolError
from tests.both import by_both
from tests.responder import KEY, SECRET
from tests.with_responder import LARGE, WithResponder, descriptors


@by_both
class Segments(WithResponder):
    def released(self, responder):
        """What the server has heard of by the next read."""
        with self.assertRaises(nigh.NotFound):
            responder.client.head("b", "other")
        return responder.released()

    def test_what_is_copied_is_released_with_the_next_read_and_nothing_stays_open(self):
        responder, client = self.large()
        before = descriptors()
        for round in range(3):
            self.assertEqual(client.get_bytes("b", "k"), LARGE)
            self.assertEqual(len(responder.released()), round)
        self.assertEqual(self.released(responder), [2, 3, 4])
        self.assertEqual(descriptors(), before)
        self.assertNotIn(wire.RELEASE, responder.operations())

    def test_a_view_is_released_when_the_last_memoryview_is_gone(self):
        responder, client = self.large()
        view = client.get("b", "k", range="bytes=5000-9999")
        kept = view.memory[10:20]
        view.release()
        del view
        gc.collect()
        self.assertEqual(kept.tobytes(), LARGE[5010:5020])
        self.assertEqual(self.released(responder), [])
        del kept
        self.assertEqual(self.released(responder), [2])

    def test_what_nobody_looks_at_is_released_too(self):
        responder, client = self.large()
        client.get("b", "k")
        self.assertEqual(self.released(responder), [2])

    def test_many_that_are_released_do_not_wait_for_the_next_read(self):
        responder, client = self.large()
        views = [client.get("b", "k") for _ in range(5)]
        del views
        self.until(lambda: sorted(responder.released()) == [2, 3, 4, 5, 6])
        self.assertEqual(responder.operations().count(wire.RELEASE), 5)

    def test_a_view_cannot_be_written_to(self):
        _, client = self.large()
        view = client.get("b", "k")
        self.assertTrue(view.memory.readonly)
        with self.assertRaises(TypeError):
            view.memory[0] = 1

    def test_a_view_behaves_as_the_bytes_do(self):
        _, client = self.large()
        view = client.get("b", "k")
        self.assertEqual((len(view), view[3], bytes(view[1:4]), bytes(view)), (len(LARGE), 3, b"\1\2\3", LARGE))
        self.assertTrue(view == LARGE and view != b"" and list(view)[:3] == [0, 1, 2])

    def test_up_to_four_that_are_released_wait_for_the_next_read(self):
        responder, client = self.large()
        views = [client.get("b", "k") for _ in range(4)]
        del views
        client.create("b", "other", 1).abandon()
        self.until(lambda: wire.ABANDON in responder.operations())
        self.assertEqual(responder.released(), [])
        self.assertEqual(sorted(self.released(responder)), [2, 3, 4, 5])
        self.assertNotIn(wire.RELEASE, responder.operations())

    def test_a_view_outlives_its_client_and_gives_no_bytes_once_it_is_closed(self):
        responder, client = self.large()
        client.put("b", "small", b"small")
        for key, data in (("k", LARGE), ("small", b"small")):
            for looked_at in (False, True):
                view = responder.client.get("b", key)
                kept = view.memory[1:] if looked_at else None
                other = nigh.Client(responder.address, KEY, SECRET, timeout_s=5)
                responder.client.close()
                responder.client = other
                self.assertEqual((view.tobytes(), bytes(view.memory)), (data, data))
                view.release()
                for reading in (view.tobytes, lambda view=view: view.memory, lambda view=view: view[0]):
                    with self.assertRaises(ValueError):
                        reading()
                if kept is not None:
                    self.assertEqual(kept, data[1:])

    def test_a_view_is_closed_by_its_with_block_and_is_iterated_and_indexed_in_it(self):
        _, client = self.large()
        with client.get("b", "k", range="bytes=1-4") as view:
            self.assertEqual((list(view), view[-1], len(view), view[1:3]), ([1, 2, 3, 4], 4, 4, b"\2\3"))
        with self.assertRaises(ValueError):
            view.tobytes()

    def test_whoever_releases_the_memory_may_still_copy_the_bytes(self):
        _, client = self.large()
        view = client.get("b", "k")
        with view.memory as memory:
            self.assertEqual(memory[1:3], LARGE[1:3])
        self.assertEqual((view.tobytes(), view._segment.read(1, 3)), (LARGE, LARGE[1:3]))

    def test_a_segment_takes_the_descriptor_from_its_answer(self):
        _, client = self.large()
        view = client.get("b", "k")
        self.assertEqual(view._answer.descriptor, -1)
        view._answer.close()
        self.assertEqual(view.tobytes(), LARGE)

    def test_any_part_is_read(self):
        _, client = self.large()
        client.put("b", "small", LARGE[5001:5008])
        for key, options in (("small", {}), ("k", {"range": "bytes=5001-5007"})):
            for begin in range(8):
                for end in range(begin, 8):
                    part = client.get("b", key, **options)._segment.read(begin, end)
                    self.assertEqual(part, LARGE[5001 + begin : 5001 + end])

    def test_what_is_read_in_pieces_is_mapped_and_what_is_copied_whole_is_not(self):
        _, client = self.large()

        def is_mapped():
            with open("/proc/self/maps") as maps:
                return "/memfd:test" in maps.read()

        view = client.get("b", "k")
        gc.collect()
        self.assertFalse(is_mapped())
        self.assertEqual((view.tobytes(), is_mapped()), (LARGE, False))
        self.assertEqual((view._segment.read(1, len(LARGE)), is_mapped()), (LARGE[1:], True))
        view.release()
        self.assertFalse(is_mapped())

    def test_without_memory_to_map_it_the_bytes_are_copied(self):
        _, client = self.large()
        view = client.get("b", "k", range="bytes=5001-99999")

        def child():
            # What the small objects need is there already.
            resource.setrlimit(resource.RLIMIT_AS, (1, resource.RLIM_INFINITY))
            assert view._segment.read(3, 1000) == LARGE[5004:6001]
            try:
                view.memory
            except OSError:
                return
            raise AssertionError("it was mapped")

        self.in_a_child(child)


class Mappings(WithResponder):
    """Of the client in Python, which maps by `mmap`."""

    def test_without_descriptors_to_map_it_the_bytes_are_copied(self):
        _, client = self.large()
        view = client.get("b", "k")
        original = mmap.mmap

        def none(*_, **__):
            raise OSError(24, "Too many open files")

        mmap.mmap = none
        try:
            self.assertEqual((view._segment.read(1, 3), view._segment.read(3, 3)), (LARGE[1:3], b""))
        finally:
            mmap.mmap = original

    def test_a_copy_that_ends_early_says_by_how_much(self):
        _, client = self.large()
        view = client.get("b", "k")
        with mock.patch.object(os, "pread", side_effect=[b"123", b""]), self.assertRaises(ProtocolError) as caught:
            view.tobytes()
        self.assertIn(f"ended {len(LARGE) - 3} bytes early", str(caught.exception))

    def test_a_copy_may_come_in_two_parts(self):
        _, client = self.large()
        view = client.get("b", "k")
        whole = os.pread
        with mock.patch.object(os, "pread", side_effect=lambda file, length, at: whole(file, min(length, 200_000), at)):
            self.assertEqual(view.tobytes(), LARGE)


@by_both
class Drafts(WithResponder):
    def test_what_is_written_into_a_draft_is_the_object_once_it_is_committed(self):
        responder = self.serve()
        with responder.client.create("b", "k", len(LARGE)) as draft:
            draft.memory[:] = LARGE
            put = draft.commit(metadata={"Who": "me"}, content_type="x/y")
        self.assertTrue(put.etag)
        view = responder.client.get("b", "k")
        self.assertEqual((bytes(view), view.metadata, view.content_type), (LARGE, {"who": "me"}, "x/y"))
        with self.assertRaises(ValueError):
            draft.memory[0] = 1

    def test_a_draft_with_a_view_in_use_is_busy_and_can_be_committed_later(self):
        responder = self.serve()
        draft = responder.client.create("b", "k", 100)
        part = draft.memory[:10]
        with self.assertRaises(nigh.Busy):
            draft.commit()
        part[:] = b"0123456789"
        part.release()
        draft.commit()
        self.assertEqual(bytes(responder.client.get("b", "k"))[:10], b"0123456789")

    def test_a_draft_that_is_left_or_forgotten_is_abandoned(self):
        responder = self.serve()
        with self.assertRaises(KeyError), responder.client.create("b", "k", 100):
            raise KeyError
        responder.client.create("b", "k", 100)
        gc.collect()
        self.until(lambda: responder.operations().count(wire.ABANDON) == 2)
        pool = responder.client._pool
        self.assertEqual(len(pool._idle), pool._count)

    def test_a_source_that_ends_early_leaves_no_segment_behind(self):
        responder = self.serve()

        class Short:
            def tell(self):
                return 0

            def seek(self, offset, whence=0):
                return 1 << 20

            def read(self, amount):
                return b""

        with self.assertRaises(EOFError):
            responder.client.put("b", "k", Short())
        self.until(lambda: wire.ABANDON in responder.operations())


@by_both
class Readers(WithResponder):
    def test_an_object_is_read_as_a_file(self):
        responder = self.serve()
        responder.client.put("b", "k", LARGE)
        with responder.client.open("b", "k") as file:
            self.assertEqual((file.read(3), file.tell(), file.seek(-2, os.SEEK_END)), (LARGE[:3], 3, len(LARGE) - 2))
            self.assertEqual((file.read(), file.read(1), file.seek(1 << 30)), (LARGE[-2:], b"", 1 << 30))
            self.assertEqual(file.read(), b"")
            buffer = bytearray(10)
            file.seek(100)
            self.assertEqual((file.readinto(buffer), bytes(buffer)), (10, LARGE[100:110]))
        with self.assertRaises(ValueError):
            file.read()


if __name__ == "__main__":
    unittest.main()
