"""The page about the image: what it shows is what builds the images of the other tests."""

from tests.e2e.reader import Reader
from tests.outcomes import check


def test_every_command_of_the_page_ends_and_prints_as_the_page_says(image_page: Reader, drop_in_image: str) -> None:
    assert drop_in_image
    check(image_page.guide, image_page.all_done)
