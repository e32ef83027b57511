import unittest

import main


class Handle(unittest.TestCase):
    def test_it_greets_who_is_named(self):
        self.assertEqual(main.handle({"name": "Ada"}, None), {"greeting": "Hello, Ada!"})

    def test_without_a_name_it_greets_the_world(self):
        self.assertEqual(main.handle({}, None), {"greeting": "Hello, world!"})


if __name__ == "__main__":
    unittest.main()
