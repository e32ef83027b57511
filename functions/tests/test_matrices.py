"""matrix_product: the products are right."""

from io import BytesIO

import numpy as np

from .support import HandlerTest


def npy(matrix: np.ndarray) -> bytes:
    data = BytesIO()
    np.save(data, matrix)
    return data.getvalue()


class MatrixProductTest(HandlerTest):
    function = "matrix_product"

    def test_gram_is_the_transpose_times_the_matrix(self):
        answer, output, content_type = self.run_on(npy(np.array([[1, 2, 3], [4, 5, 6]])))
        product = np.load(BytesIO(output))
        self.assertEqual(product.tolist(), [[17, 22, 27], [22, 29, 36], [27, 36, 45]])
        self.assertEqual((product.dtype, content_type), (np.float64, "application/x-npy"))
        self.assertEqual(answer, {"rows": 3, "columns": 3, "bytes": len(output)})

    def test_a_picture_s_gram_matrix_has_the_squares_of_its_singular_values(self):
        original = self.read_input("matrices/astronaut-128.npy")
        _, output, _ = self.run_on(original)
        expected = np.linalg.svd(np.load(BytesIO(original)), compute_uv=False) ** 2
        np.testing.assert_allclose(np.linalg.eigvalsh(np.load(BytesIO(output)))[::-1], expected, atol=1e-8)

    def test_powers_of_the_fibonacci_matrix_are_fibonacci_numbers(self):
        _, output, _ = self.run_on(npy(np.array([[1, 1], [1, 0]])), operation="power", exponent=30)
        self.assertEqual(np.load(BytesIO(output))[0, 1], 832_040)

    def test_what_is_no_matrix_of_numbers_is_an_error_and_no_code_in_it_is_run(self):
        objects = np.array([[object()]], dtype=object)
        odd = (b"", b"not an array", npy(np.zeros(3)), npy(np.zeros((0, 2))), npy(np.array([["x"]])), npy(objects))
        for body in (*odd, npy(np.zeros((9, 9)))[:-1]):
            with self.subTest(body[:60]), self.assertRaises(ValueError):
                self.run_on(body)

    def test_a_power_needs_a_square_matrix_and_arguments_have_bounds(self):
        flat = npy(np.zeros((2, 3)))
        for arguments in ({"operation": "power"}, {"operation": "inverse"}, {"exponent": 1}, {"exponent": 65}):
            with self.subTest(arguments), self.assertRaises(ValueError):
                self.run_on(flat, **arguments)
