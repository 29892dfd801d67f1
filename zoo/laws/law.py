"""What is known of the entries of a parameter at initialisation: their law, or why it is not known."""

import dataclasses

SUPPORTED = (
    "Supported: independent entries that are normal, truncated normal or uniform, orthogonal matrices, and constants; scaled, "
    "shifted, reshaped, stacked, and sums of draws from different keys"
)


@dataclasses.dataclass(frozen=True)
class Law:
    """Independent entries of one law; kind: "normal", "truncated normal", "uniform", "constant", or a sum of them.

    Not so "orthogonal": of a matrix with orthonormal rows or columns, whose entries are as independent only where it is met by
    few vectors and from one side.

    gaussian: whether exactly normal; a truncated normal and a uniform are not, a constant is: N(mean, 0). Third and fourth
    cumulants in units of the standard deviation.
    """

    mean: float
    variance: float
    gaussian: bool
    kind: str
    skewness: float = dataclasses.field(default=0.0, repr=False, compare=False)
    kurtosis: float = dataclasses.field(default=0.0, repr=False, compare=False)  # excess


@dataclasses.dataclass(frozen=True)
class Unknown:
    """In place of a `Law` that was not found."""

    reason: str


@dataclasses.dataclass(frozen=True)
class Fixed(Unknown):
    """Of an array whose entries differ and are not drawn, such as a table of rates of decay: no law of them, but their size."""

    size: float  # root mean square


def law_of(leaf: "Law | Unknown") -> Law:
    """The law; a ValueError with the reason where it is not known."""
    if isinstance(leaf, Unknown):
        raise ValueError(leaf.reason)
    return leaf
