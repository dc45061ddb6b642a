"""The error of a picture that cannot be drawn."""


class PictureError(Exception):
    """Data of a picture are missing, or changed their form."""
