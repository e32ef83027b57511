"""Errors: which one an answer's status means."""

import unittest

from nigh import errors


class Refusals(unittest.TestCase):
    def test_an_error_is_of_its_status_and_says_all_that_the_answer_said(self):
        own = {
            304: errors.NotModified,
            403: errors.AccessDenied,
            404: errors.NotFound,
            412: errors.PreconditionFailed,
            416: errors.InvalidRange,
        }
        for status in range(300, 600):
            error = errors.refused(status, "Code", "why", {"x-amz-request-id": "R"})
            self.assertIs(type(error), own.get(status, errors.Refused), status)
            self.assertEqual((error.status, error.code, error.message), (status, "Code", "why"))
            self.assertEqual(error.headers, {"x-amz-request-id": "R"})
            self.assertEqual(str(error), f"Code ({status}): why")


if __name__ == "__main__":
    unittest.main()
