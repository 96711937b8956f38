"""One error class per kind of mistake a user can make."""


class AscendSimError(ValueError):
    """Base of every error that ascendsim raises for a mistake in what it was given."""


class ConfigError(AscendSimError):
    """A product file, study file or option does not say what it must."""


class ShapeError(AscendSimError):
    """Tensor shapes or convolution attributes do not fit each other."""


class UnsupportedError(AscendSimError):
    """The request is well formed, but this product or this version does not do it."""


class CapacityError(AscendSimError):
    """A tiling or a program needs more of an on-chip buffer than there is."""


class ProgramError(AscendSimError):
    """A schedule built a program that breaks the rules of the machine."""


class DataError(AscendSimError):
    """A file with the user's data cannot be read as what it should be."""
