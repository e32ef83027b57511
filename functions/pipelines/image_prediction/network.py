"""A small network that tells patterns apart: an extreme learning machine, which is a layer of random weights and one that
is fitted.

It looks at the spectrum of a picture, which says what repeats in it, wherever that begins. `inputs.py` fits it.
"""

import numpy as np

SIDE = 64
HIDDEN = 1500
PATTERNS = ("plain", "rows", "columns", "diagonals", "checks", "dots")


def spectrum(tiles):
    """What repeats in tiles of SIDE x SIDE, as one row each."""
    tiles = tiles - tiles.mean(axis=(1, 2), keepdims=True)
    magnitude = np.log1p(np.abs(np.fft.rfft2(tiles)))
    flat = magnitude.reshape(len(tiles), -1).astype(np.float32)
    return flat / (np.linalg.norm(flat, axis=1, keepdims=True) + 1e-6)


def hidden(model, spectra):
    return np.maximum(spectra @ model["weights"] + model["bias"], 0.0)


def scores_of(model, spectra):
    """How much each of the tiles whose spectra these are looks like each pattern."""
    return hidden(model, spectra) @ model["readout"]


def scores(model, tiles):
    return scores_of(model, spectrum(tiles))
