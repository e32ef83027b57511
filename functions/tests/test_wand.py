"""The wand_ functions: what ImageMagick makes of a picture, looked at with Pillow."""

import unittest
from io import BytesIO

import numpy as np
from PIL import Image, ImageChops, ImageStat

from .support import HandlerTest, skip_class
from .test_images import encoded, opened, roughness


class Wand:
    """What holds for each of them. Mixed into a HandlerTest."""

    @classmethod
    def setUpClass(cls):
        try:
            import wand.image  # noqa: F401
        except ImportError:
            skip_class(cls.__name__, "ImageMagick's library is missing: run scripts/install-imagemagick.sh")
        super().setUpClass()

    def test_what_is_no_image_is_an_error_and_leaves_no_output(self):
        from wand.exceptions import WandException

        for body in (b"", b"not an image", self.read_input("images/hubble-16k.jpg")[:300]):
            with self.subTest(bytes=len(body)), self.assertRaises((WandException, ValueError)):
                self.run_on(body)
            keys = [entry["Key"] for entry in self.s3.list_objects_v2(Bucket=self.bucket)["Contents"]]
            self.assertNotIn("out/object", keys)

    def refuses(self, name: str, *values) -> None:
        for value in values:
            with self.subTest(**{name: value}), self.assertRaisesRegex(ValueError, name):
                self.run_on(self.read_input("images/hubble-1k.jpg"), **{name: value})


class WandBlurTest(Wand, HandlerTest):
    function = "wand_blur"

    def test_a_blurred_photograph_has_the_same_size_and_format_and_less_detail(self):
        original = self.read_input("images/hubble-16k.jpg")
        answer, output, content_type = self.run_on(original, sigma=3)
        blurred = opened(output)
        self.assertEqual((blurred.format, blurred.size, content_type), ("JPEG", (214, 187), "image/jpeg"))
        self.assertLess(roughness(blurred), roughness(opened(original)) / 2)
        self.assertEqual(answer, {"width": 214, "height": 187, "bytes": len(output)})

    def test_a_wider_blur_removes_more(self):
        original = self.read_input("images/astronaut-128.png")
        _, narrow, _ = self.run_on(original, sigma=1)
        _, wide, content_type = self.run_on(original, sigma=6)
        self.assertLess(roughness(opened(wide)), roughness(opened(narrow)))
        self.assertEqual(content_type, "image/png")

    def test_a_sigma_out_of_bounds_is_an_error(self):
        self.refuses("sigma", -1, 0, 101, float("nan"))


class WandSharpenTest(Wand, HandlerTest):
    function = "wand_sharpen"

    def test_a_soft_photograph_gets_more_detail_and_keeps_its_size(self):
        soft = encoded(opened(self.read_input("images/astronaut.png")).resize((128, 128)).resize((300, 300)))
        answer, output, content_type = self.run_on(soft, sigma=2)
        self.assertGreater(roughness(opened(output)), 1.1 * roughness(opened(soft)))
        self.assertEqual((answer["width"], answer["height"], content_type), (300, 300, "image/png"))

    def test_a_plain_area_stays_plain(self):
        _, output, _ = self.run_on(encoded(Image.new("RGB", (20, 20), (10, 120, 200))))
        self.assertEqual(opened(output).convert("RGB").getextrema(), ((10, 10), (120, 120), (200, 200)))

    def test_a_sigma_out_of_bounds_is_an_error(self):
        self.refuses("sigma", 0, 21, float("inf"))


class WandSepiaTest(Wand, HandlerTest):
    function = "wand_sepia"

    def test_a_toned_photograph_is_warmer_than_its_grey(self):
        answer, output, _ = self.run_on(self.read_input("images/hubble-16k.jpg"))
        red, green, blue = ImageStat.Stat(opened(output)).mean
        self.assertGreater(red, green)
        self.assertGreater(green, blue)
        self.assertEqual(answer, {"width": 214, "height": 187, "bytes": len(output)})

    def test_a_threshold_out_of_bounds_is_an_error(self):
        self.refuses("threshold", -0.1, 1.1)


class WandEdgeTest(Wand, HandlerTest):
    function = "wand_edge"

    def test_the_border_of_two_areas_is_bright_and_the_areas_are_dark(self):
        halves = Image.new("L", (40, 20))
        halves.paste(255, (20, 0, 40, 20))
        answer, output, _ = self.run_on(encoded(halves), radius=1)
        edges = opened(output).convert("L")
        self.assertEqual((edges.getpixel((5, 10)), edges.getpixel((34, 10))), (0, 0))
        self.assertGreater(max(edges.getpixel((19, 10)), edges.getpixel((20, 10))), 200)
        self.assertEqual((answer["width"], answer["height"]), (40, 20))

    def test_a_photograph_becomes_grey_in_its_own_format(self):
        _, output, content_type = self.run_on(self.read_input("images/hubble-16k.jpg"))
        self.assertEqual((opened(output).mode, content_type), ("L", "image/jpeg"))

    def test_a_radius_out_of_bounds_is_an_error(self):
        self.refuses("radius", -1, 11)


class WandRotateTest(Wand, HandlerTest):
    function = "wand_rotate"

    def test_a_quarter_turn_is_exact(self):
        original = self.read_input("images/coffee.png")
        answer, output, _ = self.run_on(original, angle=90)
        expected = opened(original).convert("RGB").transpose(Image.Transpose.ROTATE_270)
        self.assertIsNone(ImageChops.difference(opened(output).convert("RGB"), expected).getbbox())
        self.assertEqual((answer["width"], answer["height"]), (400, 600))

    def test_a_slant_keeps_all_of_the_picture_and_fills_the_corners_white(self):
        _, output, _ = self.run_on(self.read_input("images/astronaut-128.png"), angle=45)
        turned = opened(output).convert("RGB")
        self.assertAlmostEqual(turned.width, 181, delta=3)
        self.assertEqual(turned.getpixel((1, 1)), (255, 255, 255))

    def test_an_angle_out_of_bounds_is_an_error(self):
        self.refuses("angle", -361, 361, float("nan"))


class WandResizeTest(Wand, HandlerTest):
    function = "wand_resize"

    def test_a_photograph_comes_out_at_the_width_asked_for_in_its_shape(self):
        answer, output, content_type = self.run_on(self.read_input("images/china.jpg"), width=100)
        scaled = opened(output)
        self.assertEqual((scaled.format, scaled.size, content_type), ("JPEG", (100, 67), "image/jpeg"))
        self.assertEqual(answer, {"width": 100, "height": 67, "bytes": len(output)})

    def test_a_small_picture_is_enlarged_and_shows_the_same(self):
        original = self.read_input("images/astronaut-128.png")
        _, output, _ = self.run_on(original, width=256)
        expected = opened(original).convert("RGB").resize((256, 256))
        self.assertLess(max(ImageStat.Stat(ImageChops.difference(opened(output).convert("RGB"), expected)).mean), 4)

    def test_a_width_out_of_bounds_is_an_error(self):
        self.refuses("width", 0, 8193)


class WandThumbnailTest(Wand, HandlerTest):
    function = "wand_thumbnail"

    def test_a_thumbnail_fits_the_square_and_is_far_smaller(self):
        original = self.read_input("images/china.jpg")
        answer, output, content_type = self.run_on(original, side=100)
        self.assertEqual((opened(output).size, content_type), ((100, 67), "image/jpeg"))
        self.assertLess(len(output), len(original) / 10)
        self.assertEqual(answer, {"width": 100, "height": 67, "bytes": len(output)})

    def test_an_image_smaller_than_the_square_is_not_enlarged(self):
        _, output, _ = self.run_on(self.read_input("images/hubble-1k.jpg"))
        self.assertEqual(opened(output).size, (34, 30))

    def test_a_camera_s_turn_is_carried_out_and_its_metadata_dropped(self):
        picture, jpeg, exif = Image.new("RGB", (60, 30), "red"), BytesIO(), Image.Exif()
        exif[0x0112] = 6  # Orientation: turn by 90 degrees to see it.
        picture.save(jpeg, format="JPEG", exif=exif)
        _, output, _ = self.run_on(jpeg.getvalue(), side=30)
        self.assertEqual(opened(output).size, (15, 30))
        self.assertEqual(dict(opened(output).getexif()), {})

    def test_a_side_out_of_bounds_is_an_error(self):
        self.refuses("side", 0, 4097)


class WandDenoiseTest(Wand, HandlerTest):
    function = "wand_denoise"

    def noisy(self) -> tuple[Image.Image, bytes]:
        clean = opened(self.read_input("images/astronaut-1024.png")).convert("L").crop((256, 0, 656, 400))
        noise = np.random.default_rng(1).normal(0, 20, (400, 400))
        return clean, encoded(Image.fromarray((np.asarray(clean) + noise).clip(0, 255).astype(np.uint8)))

    def test_both_methods_bring_a_noisy_picture_nearer_to_the_clean_one(self):
        clean, noisy = self.noisy()

        def distance(data: bytes) -> float:
            return ImageStat.Stat(ImageChops.difference(opened(data).convert("L"), clean)).mean[0]

        for method in ("despeckle", "median"):
            with self.subTest(method=method):
                answer, output, _ = self.run_on(noisy, method=method)
                self.assertLess(distance(output), 0.8 * distance(noisy))
                self.assertEqual(answer, {"width": 400, "height": 400, "bytes": len(output)})

    def test_an_unknown_method_and_a_size_out_of_bounds_are_errors(self):
        self.refuses("method", "wavelet", None)
        self.refuses("size", 0, 10)


class WandConvertTest(Wand, HandlerTest):
    function = "wand_convert"

    def test_each_format_comes_out_as_itself_and_of_the_same_size(self):
        for form in ("bmp", "gif", "jpeg", "png", "tiff", "webp"):
            with self.subTest(form):
                answer, output, content_type = self.run_on(self.read_input("images/hubble-16k.jpg"), format=form)
                self.assertEqual((opened(output).format.lower(), opened(output).size), (form, (214, 187)))
                self.assertEqual(content_type, f"image/{form}")
                self.assertEqual(answer, {"width": 214, "height": 187, "format": form, "bytes": len(output)})

    def test_a_format_without_loss_keeps_every_pixel(self):
        original = self.read_input("images/astronaut-128.png")
        _, output, _ = self.run_on(original, format="tiff")
        difference = ImageChops.difference(opened(output).convert("RGB"), opened(original).convert("RGB"))
        self.assertIsNone(difference.getbbox())

    def test_what_shines_through_is_white_where_a_format_has_no_transparency(self):
        clear = Image.new("RGBA", (8, 8), (200, 0, 0, 0))
        _, output, _ = self.run_on(encoded(clear), format="jpeg")
        self.assertGreater(min(opened(output).convert("RGB").getpixel((4, 4))), 250)

    def test_an_unknown_format_is_an_error(self):
        self.refuses("format", "exe", None)
