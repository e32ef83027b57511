"""blur, sepia and thumbnail: what comes out is the picture it should be."""

from io import BytesIO

from PIL import Image, ImageChops, ImageStat

from .support import HandlerTest


def opened(data: bytes) -> Image.Image:
    return Image.open(BytesIO(data))


def encoded(image: Image.Image) -> bytes:
    png = BytesIO()
    image.save(png, format="PNG")
    return png.getvalue()


def roughness(image: Image.Image) -> float:
    """The mean difference of neighbours: what a blur takes away."""
    grey = image.convert("L")
    return ImageStat.Stat(ImageChops.difference(grey, ImageChops.offset(grey, 1, 0))).mean[0]


class BlurTest(HandlerTest):
    function = "blur"

    def test_a_blurred_image_has_the_same_size_and_less_detail(self):
        original = self.read_input("images/astronaut-128.png")
        answer, output, content_type = self.run_on(original, sigma=3)
        blurred = opened(output)
        self.assertEqual((blurred.format, blurred.size, content_type), ("PNG", (128, 128), "image/png"))
        self.assertLess(roughness(blurred), roughness(opened(original)) / 2)
        self.assertEqual(answer, {"width": 128, "height": 128, "bytes": len(output)})

    def test_a_wider_blur_removes_more(self):
        original = self.read_input("images/astronaut-128.png")
        _, narrow, _ = self.run_on(original, sigma=1)
        _, wide, _ = self.run_on(original, sigma=6)
        self.assertLess(roughness(opened(wide)), roughness(opened(narrow)))

    def test_a_palette_with_transparency_keeps_its_transparency(self):
        palette = Image.new("P", (8, 8), 1)
        palette.putpalette([0, 0, 0, 255, 0, 0])
        palette.info["transparency"] = 1
        _, output, _ = self.run_on(encoded(palette))
        self.assertEqual(opened(output).convert("RGBA").getpixel((4, 4))[3], 0)

    def test_what_is_no_image_is_an_error_and_leaves_no_output(self):
        with self.assertRaises(OSError):
            self.run_on(b"not an image")
        self.assertNotIn(
            "out/object", [entry["Key"] for entry in self.s3.list_objects_v2(Bucket=self.bucket)["Contents"]]
        )

    def test_a_sigma_out_of_bounds_is_an_error(self):
        for sigma in (-1, 1001, float("nan")):
            with self.subTest(sigma=sigma), self.assertRaises(ValueError):
                self.run_on(self.read_input("images/astronaut-32.png"), sigma=sigma)


class SepiaTest(HandlerTest):
    function = "sepia"

    def test_white_becomes_the_tone_of_old_paper_and_black_stays(self):
        picture = Image.new("RGB", (2, 1), "white")
        picture.putpixel((1, 0), (0, 0, 0))
        _, output, content_type = self.run_on(encoded(picture))
        toned = opened(output)
        self.assertEqual(content_type, "image/png")
        self.assertEqual(toned.getpixel((1, 0)), (0, 0, 0))
        self.assertEqual(toned.getpixel((0, 0)), (255, 255, 239))

    def test_a_toned_photograph_is_warmer_than_its_grey(self):
        answer, output, _ = self.run_on(self.read_input("images/astronaut-128.png"))
        red, green, blue = ImageStat.Stat(opened(output)).mean
        self.assertGreater(red, green)
        self.assertGreater(green, blue)
        self.assertEqual(answer, {"width": 128, "height": 128, "bytes": len(output)})


class ThumbnailTest(HandlerTest):
    function = "thumbnail"

    def test_a_thumbnail_fits_the_square_and_keeps_the_shape(self):
        answer, output, content_type = self.run_on(self.read_input("images/china.jpg"), side=100)
        small = opened(output)
        self.assertEqual((small.format, content_type), ("JPEG", "image/jpeg"))
        self.assertEqual(small.size, (100, 67))
        self.assertEqual(answer, {"width": 100, "height": 67, "bytes": len(output)})

    def test_a_thumbnail_shows_the_same_picture(self):
        original = self.read_input("images/astronaut-128.png")
        _, output, _ = self.run_on(original, side=64)
        expected = opened(original).convert("RGB").resize((64, 64))
        difference = ImageStat.Stat(ImageChops.difference(opened(output), expected)).mean
        self.assertLess(max(difference), 8)

    def test_an_image_smaller_than_the_square_is_not_enlarged(self):
        _, output, _ = self.run_on(self.read_input("images/astronaut-32.png"))
        self.assertEqual(opened(output).size, (32, 32))

    def test_a_side_out_of_bounds_is_an_error(self):
        for side in (0, 4097):
            with self.subTest(side=side), self.assertRaises(ValueError):
                self.run_on(self.read_input("images/astronaut-32.png"), side=side)
